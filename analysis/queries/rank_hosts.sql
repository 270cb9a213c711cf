-- On which host does each rank run? The newest process of each that holds experts.
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- ep_rank  the rank
-- host     machine; empty where it is not known
SELECT
    ep_rank,
    argMax(measurement.host, measurement.time) AS host
FROM measurement
WHERE service = {service:String} AND component = 'rank'
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND measurement.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND measurement.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY ep_rank
ORDER BY ep_rank
