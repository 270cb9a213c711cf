-- How many bytes would one more copy of an expert in every layer take from each rank?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- ep_rank  the rank
-- layers   layers with routed experts
-- bytes    weights of one physical expert, of all these layers together
SELECT
    sized.ep_rank AS ep_rank,
    any(held.layers) AS layers,
    if(
        countIf(sized.layer >= 0) > 0,
        sumIf(sized.size, sized.layer >= 0),
        maxIf(sized.size, sized.layer < 0) * layers
    ) AS bytes
FROM (
    SELECT ep_rank, layer, argMax(value, measurement.time) AS size
    FROM measurement
    WHERE metric = 'moe.expert.weight.size' AND service = {service:String}
        AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
        AND measurement.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC') - toIntervalHour(1)
        AND measurement.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    GROUP BY ep_rank, layer
) AS sized
INNER JOIN (
    SELECT ep_rank, uniqExact(layer) AS layers
    FROM expert_replicas
    WHERE service = {service:String}
        AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
        AND expert_replicas.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC') - toIntervalDay(1)
        AND expert_replicas.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    GROUP BY ep_rank
) AS held ON sized.ep_rank = held.ep_rank
GROUP BY ep_rank
ORDER BY ep_rank
