-- How long did the grouped expert kernels of each rank take in each layer, window by window?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds (length
--             of a window).
-- time_ms         start of the window, Unix ms
-- phase           prefill or decode
-- ep_rank         the rank
-- layer           layer index of the model, 0-based
-- expert_seconds  time of its experts together; where calls are sampled, scaled up to all of them
SELECT
    time_ms,
    phase,
    ep_rank,
    toInt32(position - 1) AS layer,
    ns / 1e9 AS expert_seconds
FROM (
    SELECT
        toInt64(toUnixTimestamp(toStartOfInterval(indexed_count.time, toIntervalSecond({step_seconds:UInt32})))) * 1000
            AS time_ms,
        phase,
        ep_rank,
        sumForEach(counts) AS ns_by_layer
    FROM indexed_count
    WHERE metric = 'moe.expert.group.duration' AND service = {service:String}
        AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
        AND indexed_count.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
        AND indexed_count.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    GROUP BY time_ms, phase, ep_rank
)
ARRAY JOIN ns_by_layer AS ns, arrayEnumerate(ns_by_layer) AS position
WHERE ns > 0
ORDER BY time_ms, phase, ep_rank, layer
