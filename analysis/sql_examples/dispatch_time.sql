-- How long did dispatch and combine take, minute by minute?
SELECT time, stage, sum(total_seconds) / sum(calls) AS mean_seconds
FROM dispatch_time
WHERE time > now() - INTERVAL 1 HOUR AND phase = 'decode' AND layer = -1
GROUP BY time, stage
ORDER BY time
