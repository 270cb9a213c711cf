-- How long do requests of every EP group wait? Histograms merged over processes and models.
-- Parameters: start_ms and end_ms (Unix ms, end excluded), metrics (names in the registry).
-- service, ep_group  who
-- metric             name in the registry
-- bounds             upper bounds of the buckets but the last, seconds
-- bucket_counts      observations by bucket; the last one has no upper bound
-- observations       how many, those without buckets too
-- total              sum of the values, seconds
-- newest_ms          end of the newest window with one, Unix ms
SELECT
    service,
    ep_group,
    metric,
    bounds,
    sumForEach(counts) AS bucket_counts,
    sum(distribution.observations) AS observations,
    sum(distribution.total) AS total,
    toUnixTimestamp64Milli(max(end_time)) AS newest_ms
FROM distribution
WHERE metric IN {metrics:Array(String)} AND distribution.observations > 0
    AND distribution.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND distribution.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY service, ep_group, metric, bounds
ORDER BY service, ep_group, metric
