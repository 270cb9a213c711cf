-- Histograms over time, merged over processes, models and layers: minutes of the middles of their windows.
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds,
--             metrics (names in the registry).
-- metric         name in the registry
-- stage          dispatch, combine, or empty where the metric has none
-- phase          prefill, decode, or empty where the metric has none
-- bounds         upper bounds of the buckets but the last, in the metric's unit
-- time_ms        start of the step, Unix ms
-- bucket_counts  observations by bucket; the last one has no upper bound
-- observations   how many, those without buckets too
-- total          sum of the values, in the metric's unit
SELECT
    metric,
    stage,
    phase,
    bounds,
    toInt64(toUnixTimestamp(toStartOfInterval(toStartOfMinute(distribution.time), toIntervalSecond({step_seconds:UInt32})))) * 1000
        AS time_ms,
    sumForEach(counts) AS bucket_counts,
    sum(distribution.observations) AS observations,
    sum(distribution.total) AS total
FROM distribution
WHERE metric IN {metrics:Array(String)} AND service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND distribution.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND distribution.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY metric, stage, phase, bounds, time_ms
ORDER BY metric, stage, phase, time_ms
