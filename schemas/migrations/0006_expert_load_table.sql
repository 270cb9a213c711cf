-- One row per instance, window, phase and layer; the array index is the logical expert.
CREATE TABLE IF NOT EXISTS ${database}.expert_load ${on_cluster} (
    time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'middle of the window',
    start_time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'start of the window',
    end_time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'end of the window',
    service LowCardinality(String) COMMENT 'deployment',
    instance LowCardinality(String) COMMENT 'engine process, unique per start',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    ep_rank UInt16 COMMENT 'rank that counted its own tokens, 0-based',
    ep_size UInt16 COMMENT 'ranks of the group',
    top_k UInt16 COMMENT 'experts per token',
    moe_layers UInt16 COMMENT 'layers of the model with routed experts',
    phase LowCardinality(String) COMMENT 'prefill or decode',
    layer UInt16 COMMENT 'layer index of the model, 0-based',
    experts UInt16 COMMENT 'logical experts of the layer: length of tokens',
    assignments UInt64 CODEC(T64, ZSTD(1)) COMMENT 'sum of tokens (token, expert) assignments',
    tokens Array(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'assignments by logical expert'
)
ENGINE = ${merge_tree}
PARTITION BY if(toYear(time) BETWEEN 2024 AND 2099, toDate(time), toDate(0))
ORDER BY (service, ep_group, phase, layer, ep_rank, time)
TTL toDateTime(time) + INTERVAL ${raw_ttl_hours} HOUR
SETTINGS ttl_only_drop_parts = 1, ${durable}
