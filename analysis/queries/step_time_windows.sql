-- How many forward passes did each rank do, how long were they, and how many tokens had they, window by window?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds (length
--             of a window, whole minutes).
-- time_ms        start of the window, Unix ms
-- phase          prefill or decode
-- ep_rank        the rank
-- steps          forward passes
-- tokens         that they computed
-- total_seconds  their time together
SELECT
    toInt64(toUnixTimestamp(toStartOfInterval(time, toIntervalSecond({step_seconds:UInt32})))) * 1000 AS time_ms,
    phase,
    ep_rank,
    sum(step_time.steps) AS steps,
    sum(step_time.tokens) AS tokens,
    sum(step_time.total_seconds) AS total_seconds
FROM step_time
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY time_ms, phase, ep_rank
ORDER BY time_ms, phase, ep_rank
