-- Summed over the ranks of a group; a window counts in the minute that holds its middle.
CREATE TABLE IF NOT EXISTS ${database}.expert_load_1m ${on_cluster} (
    time DateTime64(0, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    phase LowCardinality(String) COMMENT 'prefill or decode',
    layer UInt16 COMMENT 'layer index of the model, 0-based',
    experts UInt16 COMMENT 'logical experts of the layer',
    tokens AggregateFunction(sumForEach, Array(UInt64)) CODEC(ZSTD(1)) COMMENT 'assignments by logical expert'
)
ENGINE = ${aggregating_merge_tree}
PARTITION BY if(toYear(time) BETWEEN 2024 AND 2099, toDate(time), toDate(0))
ORDER BY (service, ep_group, phase, layer, experts, time)
TTL toDateTime(time) + INTERVAL ${minute_ttl_days} DAY
SETTINGS index_granularity = 128, ttl_only_drop_parts = 1, ${durable}
