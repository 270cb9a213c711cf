-- How many prompt tokens does the prefix cache save?
SELECT time, hit_ratio, hit_tokens, partial_hit_tokens, miss_tokens
FROM prefix_cache
WHERE time > now() - INTERVAL 1 HOUR
ORDER BY time
