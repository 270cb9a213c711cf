-- Which pairs of ranks exchange most bytes?
SELECT ep_rank, peer_rank, sum(bytes_sent) AS sent_bytes,
    sum(assignments) / sum(tokens) AS assignments_per_token
FROM rank_traffic
WHERE time > now() - INTERVAL 15 MINUTE
GROUP BY ep_rank, peer_rank
HAVING sum(tokens) > 0
ORDER BY sent_bytes DESC
LIMIT 50
