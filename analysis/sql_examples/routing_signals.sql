-- Which groups have room for another request?
SELECT time, service, ep_group, role, requests_waiting, kda_slots_free, mla_blocks_free, ttft_p90_seconds
FROM routing_signals
WHERE time > now() - INTERVAL 5 MINUTE
ORDER BY time DESC
