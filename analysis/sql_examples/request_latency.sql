-- How long do requests wait for their first token?
SELECT time, p50_seconds, p90_seconds, p99_seconds, observations
FROM request_latency
WHERE time > now() - INTERVAL 1 HOUR AND metric = 'ttft'
ORDER BY time
