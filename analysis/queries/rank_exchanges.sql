-- How long are each rank's dispatches and combines? All layers together: as the rank says it, or else the sum over
-- what it says by layer.
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- phase    prefill or decode
-- stage    dispatch or combine
-- ep_rank  the rank
-- calls    timed calls, whole span
-- seconds  their time together, waiting included
SELECT
    phase,
    stage,
    ep_rank,
    if(countIf(layer < 0) > 0, sumIf(observations, layer < 0), sum(observations)) AS calls,
    if(countIf(layer < 0) > 0, sumIf(total, layer < 0), sum(total)) AS seconds
FROM distribution
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND distribution.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND distribution.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    AND metric = 'moe.dispatch.duration'
GROUP BY phase, stage, ep_rank
HAVING calls > 0
ORDER BY phase, stage, ep_rank
