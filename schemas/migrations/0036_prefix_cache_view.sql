-- How many prompt tokens did the prefix cache save? Tokens computed again after a preemption are no hits.
CREATE VIEW IF NOT EXISTS ${database}.prefix_cache ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    hit_tokens UInt64 COMMENT 'prompt tokens served from the cache, of prompts that it held whole',
    partial_hit_tokens UInt64 COMMENT 'prompt tokens served from the cache, of prompts that it held in part',
    miss_tokens UInt64 COMMENT 'prompt tokens that had to be computed',
    hit_ratio Nullable(Float64) COMMENT '(hit_tokens + partial_hit_tokens) / all three, NULL where there were none'
) AS
SELECT
    CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
    service,
    ep_group,
    toUInt64(sumIf(value, result = 'hit')) AS hit_tokens,
    toUInt64(sumIf(value, result = 'partial_hit')) AS partial_hit_tokens,
    toUInt64(sumIf(value, result = 'miss')) AS miss_tokens,
    if(sum(value) = 0, NULL, (hit_tokens + partial_hit_tokens) / sum(value)) AS hit_ratio
FROM ${database}.measurement AS raw
WHERE metric = 'moe.prefix_cache.tokens'
GROUP BY time, service, ep_group
