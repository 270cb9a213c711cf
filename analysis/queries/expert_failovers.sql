-- How often did other copies of one expert serve, and why?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), layer, expert.
-- reason     rank_down, timeout or overload
-- failovers  over the whole span
SELECT
    reason,
    sum(expert_failovers.failovers) AS failovers
FROM expert_failovers
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    AND layer = {layer:UInt32} AND expert = {expert:UInt32}
GROUP BY reason
HAVING failovers > 0
ORDER BY reason
