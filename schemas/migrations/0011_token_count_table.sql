-- Token rows as the engine scheduled them: what the routed assignments are reconciled with.
CREATE TABLE IF NOT EXISTS ${database}.token_count ${on_cluster} (
    time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'middle of the window',
    end_time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'end of the window',
    service LowCardinality(String) COMMENT 'deployment',
    instance LowCardinality(String) COMMENT 'engine process, unique per start',
    component LowCardinality(String) DEFAULT 'rank' COMMENT 'rank, scheduler, frontend or scraper',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    ep_rank UInt16 COMMENT 'EP rank, 0-based',
    phase LowCardinality(String) COMMENT 'prefill, decode, or empty where a row had none',
    excluded LowCardinality(String) COMMENT 'none, or why the rows are no part of the load',
    tokens UInt64 CODEC(T64, ZSTD(1)) COMMENT 'token rows'
)
ENGINE = ${merge_tree}
PARTITION BY if(toYear(time) BETWEEN 2024 AND 2099, toDate(time), toDate(0))
ORDER BY (service, ep_group, phase, excluded, ep_rank, time)
TTL toDateTime(time) + INTERVAL ${minute_ttl_days} DAY
SETTINGS ttl_only_drop_parts = 1, ${durable}
