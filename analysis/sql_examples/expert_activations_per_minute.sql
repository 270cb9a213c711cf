-- Which experts were chosen most in the last hour?
SELECT layer, expert, sum(activations) AS activations
FROM expert_activations_per_minute
WHERE time > now() - INTERVAL 1 HOUR AND phase = 'decode'
GROUP BY layer, expert
ORDER BY activations DESC
LIMIT 20
