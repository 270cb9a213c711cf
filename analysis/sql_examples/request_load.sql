-- How many requests run, and how many wait?
SELECT time, sum(running) AS running, sum(waiting) AS waiting
FROM request_load
WHERE time > now() - INTERVAL 1 HOUR
GROUP BY time
ORDER BY time
