-- How many bytes of experts, and how many copies, does each rank hold?
SELECT ep_rank, sum(bytes) AS expert_bytes, sum(replicas) AS copies
FROM expert_memory
GROUP BY ep_rank
ORDER BY ep_rank
