-- Whose waits are stored? Not every engine counts them in seconds.
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- engine  inference engine; empty where it is not known
SELECT DISTINCT engine
FROM indexed_count
WHERE metric = 'moe.dispatch.wait' AND service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND indexed_count.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND indexed_count.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
ORDER BY engine
