-- Plain histograms by window, deltas: latencies and step sizes. Buckets are those of the sender.
CREATE TABLE IF NOT EXISTS ${database}.distribution ${on_cluster} (
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
    model LowCardinality(String) COMMENT 'model that requests asked for, otherwise the model of the process',
    observations UInt64 CODEC(T64, ZSTD(1)) COMMENT 'values observed in the window',
    total Float64 CODEC(ZSTD(1)) COMMENT 'their sum, in the unit of the metric',
    bounds Array(Float64) CODEC(ZSTD(1)) COMMENT 'upper bounds of the buckets but the last, in the unit of the metric',
    counts Array(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'observations by bucket, the last one has no upper bound'
)
ENGINE = ${merge_tree}
PARTITION BY if(toYear(time) BETWEEN 2024 AND 2099, toDate(time), toDate(0))
ORDER BY (metric, service, ep_group, time, ep_rank)
TTL toDateTime(time) + INTERVAL ${minute_ttl_days} DAY
SETTINGS ttl_only_drop_parts = 1, ${durable}
