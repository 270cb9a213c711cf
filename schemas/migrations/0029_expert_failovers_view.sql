-- How often did another copy serve in place of an expert, and why? Minutes and experts without one have no row.
CREATE VIEW IF NOT EXISTS ${database}.expert_failovers ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    layer UInt16 COMMENT 'layer index of the model, 0-based',
    expert UInt16 COMMENT 'logical expert, 0-based',
    reason LowCardinality(String) COMMENT 'rank_down, timeout or overload',
    failovers UInt64 COMMENT 'times in the minute, over all ranks'
) AS
SELECT time, service, ep_group, toUInt16(layer) AS layer, toUInt16(position - 1) AS expert, reason, times AS failovers
FROM (
    SELECT
        CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
        service, ep_group, layer, reason,
        sumForEach(counts) AS times_by_expert
    FROM ${database}.indexed_count AS raw
    WHERE metric = 'moe.expert.failovers' AND layer >= 0
    GROUP BY time, service, ep_group, layer, reason
)
ARRAY JOIN times_by_expert AS times, arrayEnumerate(times_by_expert) AS position
WHERE times > 0
