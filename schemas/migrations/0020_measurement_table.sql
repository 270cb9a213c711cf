-- Numbers by window: changes of counters, states as they were. Gauges, up-down counters and delta counters of the
-- metric registry, except `moe.tokens`, which `token_count` keeps. A state must never be summed over time.
CREATE TABLE IF NOT EXISTS ${database}.measurement ${on_cluster} (
    time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'middle of the window',
    start_time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'start of the window',
    end_time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'end of the window',
    service LowCardinality(String) COMMENT 'deployment',
    instance LowCardinality(String) COMMENT 'process, unique per start',
    component LowCardinality(String) COMMENT 'rank, scheduler, frontend or scraper',
    role LowCardinality(String) COMMENT 'prefill, decode or mixed',
    engine LowCardinality(String) COMMENT 'inference engine',
    host LowCardinality(String) COMMENT 'machine',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    ep_rank UInt16 COMMENT 'EP rank, 0-based, the first of its engine where a process is no rank',
    ep_size UInt16 COMMENT 'ranks of the group',
    metric LowCardinality(String) COMMENT 'name in the metric registry',
    phase LowCardinality(String) COMMENT 'prefill, decode, or empty where the metric has none',
    layer Int32 CODEC(T64, ZSTD(1)) COMMENT 'layer index of the model, 0-based, -1 where the point has none',
    pool LowCardinality(String) COMMENT 'memory pool',
    reason LowCardinality(String) COMMENT 'why: of KDA state copies and of failed exports',
    result LowCardinality(String) COMMENT 'what the prefix cache answered',
    contract LowCardinality(String) COMMENT 'met or missed: the latency contract',
    direction LowCardinality(String) COMMENT 'transmit or receive, seen from the sender of the point',
    gpu LowCardinality(String) COMMENT 'hw.id',
    value Float64 CODEC(ZSTD(1)) COMMENT 'in the unit of the metric'
)
ENGINE = ${merge_tree}
PARTITION BY if(toYear(time) BETWEEN 2024 AND 2099, toDate(time), toDate(0))
ORDER BY (metric, service, ep_group, time, ep_rank)
TTL toDateTime(time) + INTERVAL ${minute_ttl_days} DAY
SETTINGS ttl_only_drop_parts = 1, ${durable}
