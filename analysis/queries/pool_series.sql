-- How full were the caches and pools of each rank, from step to step? States of the newest window of each step; a limit
-- is sent rarely, so those of the hour before count as well.
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds.
-- metric    moe.memory.usage, moe.kda_state.slots, moe.mla_kv_cache.blocks, their limits, or moe.requests.running
-- pool      memory pool; empty where the metric has none
-- ep_rank   the rank, the first of its engine where a process is no rank
-- steps_ms  starts of the steps with a window, Unix ms, increasing
-- states    in each of them, in the metric's unit; running requests are added up over the processes of the rank
SELECT
    metric,
    pool,
    ep_rank,
    groupArray(step_ms) AS steps_ms,
    groupArray(state) AS states
FROM (
    SELECT
        metric, pool, ep_rank, step_ms,
        if(metric = 'moe.requests.running', sum(last), argMax(last, newest)) AS state
    FROM (
        SELECT
            metric, pool, ep_rank, instance,
            toInt64(toUnixTimestamp(toStartOfInterval(measurement.time, toIntervalSecond({step_seconds:UInt32})))) * 1000
                AS step_ms,
            argMax(value, measurement.time) AS last,
            max(measurement.time) AS newest
        FROM measurement
        WHERE service = {service:String}
            AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
            AND metric IN (
                'moe.memory.usage', 'moe.kda_state.slots', 'moe.mla_kv_cache.blocks', 'moe.requests.running',
                'moe.memory.limit', 'moe.kda_state.slots.limit', 'moe.mla_kv_cache.blocks.limit'
            )
            AND measurement.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
            AND measurement.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
                - toIntervalSecond(if(endsWith(metric, '.limit'), 3600, 0))
        GROUP BY metric, pool, ep_rank, instance, step_ms
    )
    GROUP BY metric, pool, ep_rank, step_ms
    ORDER BY metric, pool, ep_rank, step_ms
)
GROUP BY metric, pool, ep_rank
ORDER BY metric, pool, ep_rank
