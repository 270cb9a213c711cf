-- What did the prefix cache answer for the prompt tokens that were looked up?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds.
-- time_ms             start of the step, Unix ms
-- hit_tokens          found
-- partial_hit_tokens  found in part
-- miss_tokens         not found
SELECT
    toInt64(toUnixTimestamp(toStartOfInterval(time, toIntervalSecond({step_seconds:UInt32})))) * 1000 AS time_ms,
    sum(prefix_cache.hit_tokens) AS hit_tokens,
    sum(prefix_cache.partial_hit_tokens) AS partial_hit_tokens,
    sum(prefix_cache.miss_tokens) AS miss_tokens
FROM prefix_cache
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY time_ms
ORDER BY time_ms
