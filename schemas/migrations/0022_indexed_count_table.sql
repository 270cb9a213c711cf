-- Index-encoded histograms by window, deltas, except `moe.expert.tokens` and `moe.expert.replicas`, which have
-- tables of their own. The array index is an expert, a peer rank or a layer, as the metric has it.
CREATE TABLE IF NOT EXISTS ${database}.indexed_count ${on_cluster} (
    time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'middle of the window',
    start_time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'start of the window',
    end_time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'end of the window',
    service LowCardinality(String) COMMENT 'deployment',
    instance LowCardinality(String) COMMENT 'process, unique per start',
    component LowCardinality(String) COMMENT 'rank, scheduler, frontend or scraper',
    role LowCardinality(String) COMMENT 'prefill, decode or mixed',
    engine LowCardinality(String) COMMENT 'inference engine',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    ep_rank UInt16 COMMENT 'EP rank, 0-based, the first of its engine where a process is no rank',
    ep_size UInt16 COMMENT 'ranks of the group',
    metric LowCardinality(String) COMMENT 'name in the metric registry',
    phase LowCardinality(String) COMMENT 'prefill, decode, or empty where the metric has none',
    layer Int32 CODEC(T64, ZSTD(1)) COMMENT 'layer index of the model, 0-based, -1 where the point has none',
    stage LowCardinality(String) COMMENT 'dispatch or combine',
    reason LowCardinality(String) COMMENT 'why another copy served',
    source LowCardinality(String) COMMENT 'measured or apportioned',
    direction LowCardinality(String) COMMENT 'transmit or receive, seen from the reporting rank',
    counts Array(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'by index, in the unit of the metric'
)
ENGINE = ${merge_tree}
PARTITION BY if(toYear(time) BETWEEN 2024 AND 2099, toDate(time), toDate(0))
ORDER BY (metric, service, ep_group, time, ep_rank)
TTL toDateTime(time) + INTERVAL ${minute_ttl_days} DAY
SETTINGS ttl_only_drop_parts = 1, ${durable}
