-- How much expert work did each rank get? Expert load × placement, split evenly over an expert's copies,
-- with the newest placement snapshot that is not younger than the minute.
CREATE VIEW IF NOT EXISTS ${database}.rank_load ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    phase LowCardinality(String) COMMENT 'prefill or decode',
    layer UInt16 COMMENT 'layer index of the model, 0-based',
    ep_rank UInt16 COMMENT 'rank that holds the experts, 0-based',
    load Float64 COMMENT 'assignments computed by this rank in the minute',
    mean_load Float64 COMMENT 'mean of load over the ranks of the layer',
    load_ratio Float64 COMMENT 'load / mean_load, the largest of a layer is its imbalance ratio (max / mean)'
) AS
SELECT
    time,
    service,
    ep_group,
    phase,
    layer,
    rank_replicas.1 AS ep_rank,
    arraySum((n, held, copies) -> if(copies = 0, 0, n * held / copies), tokens, rank_replicas.2, all_replicas) AS load,
    arraySum((n, copies) -> if(copies = 0, 0, n), tokens, all_replicas) / length(by_rank) AS mean_load,
    if(mean_load = 0, 1, load / mean_load) AS load_ratio
FROM (
    SELECT
        load.time AS time,
        load.service AS service,
        load.ep_group AS ep_group,
        load.phase AS phase,
        load.layer AS layer,
        any(load.tokens) AS tokens,
        -- A group that came back with other ranks leaves the snapshots of the old ones behind.
        arrayFilter(
            placement -> placement.3 = argMax(placed.ep_size, placed.since),
            groupArray((placed.ep_rank, placed.replicas, placed.ep_size))
        ) AS by_rank,
        arrayReduce('sumForEach', arrayMap(placement -> placement.2, by_rank)) AS all_replicas
    FROM (
        SELECT time, service, ep_group, phase, layer, experts, ep_rank, tokens
        FROM (
            SELECT time, service, ep_group, phase, layer, experts, sumForEachMerge(tokens) AS tokens
            FROM ${database}.expert_load_1m
            GROUP BY time, service, ep_group, phase, layer, experts
        ) AS minute
        INNER JOIN (
            SELECT DISTINCT service, ep_group, layer, experts, ep_rank FROM ${database}.expert_replicas
        ) AS held USING (service, ep_group, layer, experts)
    ) AS load
    ASOF INNER JOIN (
        SELECT
            service, ep_group, layer, experts, ep_rank, ep_size, replicas,
            toStartOfMinute(expert_replicas.time) AS since
        FROM ${database}.expert_replicas
    ) AS placed
    ON load.service = placed.service AND load.ep_group = placed.ep_group AND load.layer = placed.layer
        AND load.experts = placed.experts AND load.ep_rank = placed.ep_rank AND load.time >= placed.since
    GROUP BY time, service, ep_group, phase, layer
)
ARRAY JOIN by_rank AS rank_replicas
