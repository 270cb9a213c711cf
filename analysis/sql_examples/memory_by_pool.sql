-- Which pools are fullest now?
SELECT ep_rank, pool, argMax(used_ratio, time) AS used_ratio, argMax(used_bytes, time) AS used_bytes
FROM memory_by_pool
WHERE time > now() - INTERVAL 15 MINUTE AND limit_bytes IS NOT NULL
GROUP BY ep_rank, pool
ORDER BY used_ratio DESC
LIMIT 20
