-- How much expert work did each rank get? Expert load × placement, split evenly over an expert's copies,
-- with the placement that each rank had at the end of the minute.
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
    rank AS ep_rank,
    loads.2[indexOf(loads.1, rank)] AS load,
    arraySum(shares) / length(ranks) AS mean_load,
    if(mean_load = 0, 1, load / mean_load) AS load_ratio
FROM (
    SELECT
        minute.time AS time,
        minute.service AS service,
        minute.ep_group AS ep_group,
        minute.phase AS phase,
        minute.layer AS layer,
        placement.by_rank.1 AS ranks,
        -- Slot by slot, in the order of the experts: which rank has it, and its share of the expert's tokens. No
        -- function here looks into an array of another row: that would copy it for every element.
        arrayFlatten(placement.by_rank.2) AS expert_of_slot,
        arraySort(
            (rank, expert) -> expert,
            arrayFlatten(arrayMap(one -> arrayWithConstant(length(one.2), one.1), placement.by_rank)),
            expert_of_slot
        ) AS rank_of_slot,
        -- Copies of each expert and one more, so that an expert without any keeps its place.
        arrayReduce(
            'sumMap',
            [arrayConcat(expert_of_slot, range(minute.experts))],
            [arrayWithConstant(length(expert_of_slot) + minute.experts, toUInt32(1))]
        ).2 AS copies_and_one,
        arrayFlatten(
            arrayMap((n, copies) -> arrayWithConstant(copies - 1, n / (copies - 1)), minute.tokens, copies_and_one)
        ) AS shares,
        arrayReduce('sumMap', [rank_of_slot], [shares]) AS loads
    FROM (
        SELECT time, service, ep_group, phase, layer, experts, sumForEachMerge(tokens) AS tokens
        FROM ${database}.expert_load_1m
        GROUP BY time, service, ep_group, phase, layer, experts
    ) AS minute
    INNER JOIN (
        SELECT
            known.time AS time,
            known.service AS service,
            known.ep_group AS ep_group,
            known.layer AS layer,
            known.experts AS experts,
            -- A group that came back with other ranks leaves the snapshots of the old ones behind.
            arrayFilter(
                rank -> rank.3 = argMax(placed.ep_size, placed.since),
                groupArray((placed.ep_rank, placed.slots, placed.ep_size))
            ) AS by_rank
        FROM (
            SELECT time, time + INTERVAL 1 MINUTE AS minute_end, service, ep_group, layer, experts, ep_rank
            FROM (
                SELECT DISTINCT time, service, ep_group, layer, experts FROM ${database}.expert_load_1m
            ) AS counted
            INNER JOIN (
                SELECT DISTINCT service, ep_group, layer, experts, ep_rank FROM ${database}.expert_replicas
            ) AS held USING (service, ep_group, layer, experts)
        ) AS known
        ASOF INNER JOIN (
            -- The list of copies and not the array: snapshots of days fit into memory.
            SELECT service, ep_group, layer, experts, ep_rank, ep_size, slots, expert_replicas.time AS since
            FROM ${database}.expert_replicas
        ) AS placed
        ON known.service = placed.service AND known.ep_group = placed.ep_group AND known.layer = placed.layer
            AND known.experts = placed.experts AND known.ep_rank = placed.ep_rank AND known.minute_end > placed.since
        GROUP BY time, service, ep_group, layer, experts
    ) AS placement
    ON minute.time = placement.time AND minute.service = placement.service
        AND minute.ep_group = placement.ep_group AND minute.layer = placement.layer
        AND minute.experts = placement.experts
)
ARRAY JOIN ranks AS rank
