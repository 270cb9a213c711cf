-- How full is each pool of each rank now? The newest minute of each within the span.
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- ep_rank      the rank
-- pool         weights, runtime, kda_state, mla_kv_cache, replication or transfer
-- used_bytes   in use
-- limit_bytes  what the pool may use; null where it is not known
SELECT
    ep_rank,
    pool,
    argMax(used, time) AS used_bytes,
    argMax(may_use, time) AS limit_bytes
FROM (
    SELECT time, ep_rank, pool, used_bytes AS used, limit_bytes AS may_use
    FROM memory_by_pool
    WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
)
GROUP BY ep_rank, pool
ORDER BY ep_rank, pool
