-- How busy is each rank's GPU?
SELECT time, ep_rank, avg(utilization) AS utilization, max(memory_used_bytes) AS memory_used_bytes
FROM gpu
WHERE time > now() - INTERVAL 1 HOUR
GROUP BY time, ep_rank
ORDER BY time, ep_rank
