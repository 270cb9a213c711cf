-- How full are the KDA state slots and the MLA KV cache, minute by minute?
SELECT time, sum(kda_slots) / sum(kda_slots_limit) AS kda_used_ratio,
    sum(mla_blocks) / sum(mla_blocks_limit) AS mla_used_ratio
FROM cache_state
WHERE time > now() - INTERVAL 1 HOUR
GROUP BY time
ORDER BY time
