-- Which experts had to be served by other copies, and why? Those with most failovers first.
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), limit.
-- ep_group   expert-parallel group
-- layer      layer index of the model, 0-based
-- expert     logical expert
-- reason     rank_down, timeout or overload
-- failovers  times that another copy served
-- of_reason  all failovers of that reason, over all experts
SELECT
    ep_group,
    layer,
    expert,
    reason,
    sum(expert_failovers.failovers) AS failovers,
    sum(failovers) OVER (PARTITION BY reason) AS of_reason
FROM expert_failovers
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY ep_group, layer, expert, reason
HAVING failovers > 0
ORDER BY failovers DESC, ep_group, layer, expert
LIMIT {limit:UInt32}
