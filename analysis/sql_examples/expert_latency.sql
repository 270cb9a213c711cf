-- Which experts take most time per token?
SELECT layer, expert, source, sum(duration_ns) / sum(tokens) AS ns_per_token, sum(tokens) AS assignments
FROM expert_latency
WHERE time > now() - INTERVAL 15 MINUTE AND phase = 'decode'
GROUP BY layer, expert, source
HAVING assignments > 0
ORDER BY ns_per_token DESC
LIMIT 20
