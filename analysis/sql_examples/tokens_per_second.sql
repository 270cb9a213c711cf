-- How many tokens a second does the fleet compute, by phase?
SELECT time, phase, sum(tokens_per_second) AS tokens_per_second
FROM tokens_per_second
WHERE time > now() - INTERVAL 1 HOUR AND excluded = 'none'
GROUP BY time, phase
ORDER BY time
