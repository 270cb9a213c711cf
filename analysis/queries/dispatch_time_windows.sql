-- How long did dispatch and combine take on each rank, over all layers, window by window?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds (length
--             of a window, whole minutes).
-- time_ms        start of the window, Unix ms
-- phase          prefill or decode
-- stage          dispatch or combine
-- ep_rank        the rank
-- calls          timed calls
-- total_seconds  their time together, waiting included
SELECT
    toInt64(toUnixTimestamp(toStartOfInterval(time, toIntervalSecond({step_seconds:UInt32})))) * 1000 AS time_ms,
    phase,
    stage,
    ep_rank,
    sum(dispatch_time.calls) AS calls,
    sum(dispatch_time.total_seconds) AS total_seconds
FROM dispatch_time
WHERE service = {service:String} AND layer = -1
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY time_ms, phase, stage, ep_rank
ORDER BY time_ms, phase, stage, ep_rank
