-- Through which front end did the requests that finished come?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- instance  process that reported them
-- requests  that finished
SELECT instance, sum(observations) AS requests
FROM distribution
WHERE metric = 'gen_ai.server.request.duration' AND service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND distribution.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND distribution.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY instance
ORDER BY requests DESC, instance
