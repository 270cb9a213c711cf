-- How imbalanced was each layer, minute by minute? Max / mean over ranks; 1 is even.
SELECT time, layer, max(load_ratio) AS imbalance_ratio
FROM rank_load
WHERE time > now() - INTERVAL 1 HOUR AND phase = 'decode'
GROUP BY time, layer
ORDER BY imbalance_ratio DESC
LIMIT 100
