-- Where does each expert live, and how many bytes does it take there? The newest placement of each rank within the
-- last day, times the weight size that the rank reports. Ranks of a group that came back with another size are gone.
CREATE VIEW IF NOT EXISTS ${database}.expert_memory ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute of the snapshot',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    ep_rank UInt16 COMMENT 'rank that holds the copies, 0-based',
    layer UInt16 COMMENT 'layer index of the model, 0-based',
    expert UInt16 COMMENT 'logical expert, 0-based',
    replicas UInt64 COMMENT 'copies on this rank, experts without one there are left out',
    bytes UInt64 COMMENT 'replicas × bytes of one physical expert, 0 where the rank does not report its weight size'
) AS
WITH newest AS (
    SELECT service, ep_group, ep_rank, layer, snapshot_time
    FROM (
        SELECT
            service, ep_group, ep_rank, layer,
            max(keys.time) AS snapshot_time,
            argMax(keys.ep_size, keys.time) AS size_then,
            argMax(size_then, snapshot_time) OVER (PARTITION BY service, ep_group) AS size_now
        FROM ${database}.expert_replicas AS keys
        WHERE keys.time >= now64(3, 'UTC') - INTERVAL 1 DAY
        GROUP BY service, ep_group, ep_rank, layer
    )
    WHERE size_then = size_now
),
weight AS (
    SELECT service, ep_group, ep_rank, layer, argMax(value, state.time) AS bytes_each
    FROM ${database}.measurement AS state
    WHERE metric = 'moe.expert.weight.size' AND state.time >= now64(3, 'UTC') - INTERVAL 1 DAY
    GROUP BY service, ep_group, ep_rank, layer
)
SELECT
    toDateTime64(toStartOfMinute(snapshot_time), 0, 'UTC') AS time,
    placed.service AS service,
    placed.ep_group AS ep_group,
    placed.ep_rank AS ep_rank,
    placed.layer AS layer,
    toUInt16(position - 1) AS expert,
    copies AS replicas,
    toUInt64(copies * if(own_layer.bytes_each > 0, own_layer.bytes_each, every_layer.bytes_each)) AS bytes
FROM (
    SELECT service, ep_group, ep_rank, layer, snapshot.time AS snapshot_time, any(snapshot.replicas) AS copies_by_expert
    FROM ${database}.expert_replicas AS snapshot
    -- Ranks agree on their times, so this alone leaves nearly all of the table untouched.
    WHERE snapshot.time IN (SELECT newest.snapshot_time FROM newest)
        AND (service, ep_group, ep_rank, layer, snapshot.time) IN (
            SELECT service, ep_group, ep_rank, layer, newest.snapshot_time FROM newest
        )
    GROUP BY service, ep_group, ep_rank, layer, snapshot_time
) AS placed
LEFT JOIN (SELECT * FROM weight WHERE weight.layer >= 0) AS own_layer
    ON placed.service = own_layer.service AND placed.ep_group = own_layer.ep_group
        AND placed.ep_rank = own_layer.ep_rank AND toInt32(placed.layer) = own_layer.layer
LEFT JOIN (SELECT * FROM weight WHERE weight.layer < 0) AS every_layer
    ON placed.service = every_layer.service AND placed.ep_group = every_layer.ep_group
        AND placed.ep_rank = every_layer.ep_rank
ARRAY JOIN copies_by_expert AS copies, arrayEnumerate(copies_by_expert) AS position
WHERE copies > 0
