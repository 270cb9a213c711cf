-- How many requests did each front end finish?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- ep_group  expert-parallel group that it serves
-- host      machine; empty where it is not known
-- instance  process
-- requests  that finished, whole span
SELECT ep_group, host, instance, sum(value) AS requests
FROM measurement
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND measurement.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND measurement.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    AND metric = 'moe.requests.finished'
GROUP BY ep_group, host, instance
HAVING requests > 0
ORDER BY requests DESC, ep_group, instance
