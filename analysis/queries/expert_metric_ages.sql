-- How old is the newest number of each kind, from each rank? Ranks beyond the newest size of their group are gone.
-- Parameters: service, ep_group.
-- kind         activation_count_per_minute, latency, memory or failover_count
-- ep_rank      who reported it
-- age_seconds  time since the end of its newest window (of a placement: since its middle)
WITH newest AS (
    SELECT 'activation_count_per_minute' AS kind, ep_rank, max(end_time) AS last_time, argMax(ep_size, end_time) AS size
    FROM expert_load
    WHERE service = {service:String} AND ep_group = {ep_group:String}
    GROUP BY ep_rank
    UNION ALL
    SELECT 'latency' AS kind, ep_rank, max(end_time) AS last_time, argMax(ep_size, end_time) AS size
    FROM indexed_count
    WHERE metric IN ('moe.expert.duration', 'moe.expert.group.duration')
        AND service = {service:String} AND ep_group = {ep_group:String}
        AND indexed_count.time >= now64(3, 'UTC') - INTERVAL 1 DAY
    GROUP BY ep_rank
    UNION ALL
    SELECT 'failover_count' AS kind, ep_rank, max(end_time) AS last_time, argMax(ep_size, end_time) AS size
    FROM indexed_count
    WHERE metric = 'moe.expert.failovers'
        AND service = {service:String} AND ep_group = {ep_group:String}
        AND indexed_count.time >= now64(3, 'UTC') - INTERVAL 1 DAY
    GROUP BY ep_rank
    UNION ALL
    -- Both are needed: where the copies are, and how large one is.
    SELECT 'memory' AS kind, ep_rank, least(placed.last_time, sized.last_time) AS last_time, placed.size AS size
    FROM (
        SELECT ep_rank, max(expert_replicas.time) AS last_time, argMax(ep_size, expert_replicas.time) AS size
        FROM expert_replicas
        WHERE service = {service:String} AND ep_group = {ep_group:String}
            AND expert_replicas.time >= now64(3, 'UTC') - INTERVAL 1 DAY
        GROUP BY ep_rank
    ) AS placed
    INNER JOIN (
        SELECT ep_rank, max(measurement.end_time) AS last_time
        FROM measurement
        WHERE metric = 'moe.expert.weight.size'
            AND service = {service:String} AND ep_group = {ep_group:String}
            AND measurement.time >= now64(3, 'UTC') - INTERVAL 1 DAY
        GROUP BY ep_rank
    ) AS sized USING (ep_rank)
)
SELECT kind, ep_rank, dateDiff('millisecond', last_time, now64(3, 'UTC')) / 1000 AS age_seconds
FROM newest
WHERE ep_rank < (SELECT argMax(size, last_time) FROM newest)
ORDER BY kind, ep_rank
