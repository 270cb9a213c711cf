-- How busy and how full is each GPU?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- ep_group, ep_rank    whose it is
-- host                 machine
-- gpu                  its id there
-- utilization          mean share of the time that it was busy; null where it does not say, as below
-- memory_used_bytes    newest
-- memory_limit_bytes   newest
-- sent_bytes           over its links, whole span; null where they are not counted, as below
-- received_bytes       over its links, whole span
SELECT
    ep_group,
    ep_rank,
    host,
    gpu,
    avg(busy) AS utilization,
    argMax(used, time) AS memory_used_bytes,
    argMax(may_use, time) AS memory_limit_bytes,
    toFloat64(sum(sent)) AS sent_bytes,
    toFloat64(sum(received)) AS received_bytes
FROM (
    SELECT
        time, ep_group, ep_rank, host, gpu, utilization AS busy, memory_used_bytes AS used,
        memory_limit_bytes AS may_use, sent_bytes AS sent, received_bytes AS received
    FROM gpu
    WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
)
GROUP BY ep_group, ep_rank, host, gpu
ORDER BY ep_group, ep_rank, host, gpu
