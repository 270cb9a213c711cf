-- Which rank's forward passes are slowest?
SELECT time, ep_rank, mean_seconds
FROM step_time
WHERE time > now() - INTERVAL 1 HOUR AND phase = 'decode'
ORDER BY time, ep_rank
