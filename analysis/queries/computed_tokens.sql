-- Token rows that the engines computed, those of the load and those that are excluded.
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds.
-- phase     prefill, decode, or empty where an excluded row has none
-- excluded  none, padding, warmup or dummy
-- time_ms   start of the step, Unix ms
-- tokens    token rows
SELECT
    phase,
    excluded,
    toInt64(toUnixTimestamp(toStartOfInterval(time, toIntervalSecond({step_seconds:UInt32})))) * 1000 AS time_ms,
    sum(tokens_per_second.tokens) AS tokens
FROM tokens_per_second
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY phase, excluded, time_ms
ORDER BY phase, excluded, time_ms
