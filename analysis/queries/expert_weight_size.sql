-- How large is one copy of an expert? What each rank of an EP group said last, within some time before a moment.
-- Parameters: service, ep_group, from_ms and until_ms (Unix ms, both included).
-- layer       layer index of the model, 0-based; -1 where a rank says one size for every layer
-- bytes_each  bytes of one physical expert, the largest that a rank says
SELECT
    layer,
    toFloat64(max(said)) AS bytes_each
FROM (
    SELECT ep_rank, layer, argMax(value, measurement.time) AS said
    FROM measurement
    WHERE metric = 'moe.expert.weight.size'
        AND service = {service:String} AND ep_group = {ep_group:String}
        AND measurement.time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
        AND measurement.time <= fromUnixTimestamp64Milli({until_ms:Int64}, 'UTC')
    GROUP BY ep_rank, layer
)
GROUP BY layer
ORDER BY layer
