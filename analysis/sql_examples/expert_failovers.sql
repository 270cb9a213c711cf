-- For which experts did another copy serve, and why?
SELECT layer, expert, reason, sum(failovers) AS failovers
FROM expert_failovers
WHERE time > now() - INTERVAL 1 DAY
GROUP BY layer, expert, reason
ORDER BY failovers DESC
LIMIT 20
