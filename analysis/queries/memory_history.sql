-- How full were the pools over time?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds.
-- time_ms          start of the step, Unix ms
-- pool             weights, runtime, kda_state, mla_kv_cache, replication or transfer
-- fullest_ratio    used / limit of the fullest rank; null without limits
-- mean_used_bytes  of the mean rank
SELECT
    toInt64(toUnixTimestamp(toStartOfInterval(time, toIntervalSecond({step_seconds:UInt32})))) * 1000 AS time_ms,
    pool,
    max(used_ratio) AS fullest_ratio,
    avg(used_bytes) AS mean_used_bytes
FROM memory_by_pool
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY time_ms, pool
ORDER BY pool, time_ms
