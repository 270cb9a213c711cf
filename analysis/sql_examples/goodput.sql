-- Which share of the requests kept the latency contract?
SELECT time, sum(good_requests) / nullIf(sum(requests), 0) AS good_share, sum(good_tokens) AS good_tokens
FROM goodput
WHERE time > now() - INTERVAL 1 HOUR
GROUP BY time
ORDER BY time
