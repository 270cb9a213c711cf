-- Which of the six pools holds a rank's memory, and how full is it? States at the end of the minute. A limit hardly
-- changes and is sent rarely: the last one known within an hour counts.
CREATE VIEW IF NOT EXISTS ${database}.memory_by_pool ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    ep_rank UInt16 COMMENT 'EP rank, 0-based',
    instance LowCardinality(String) COMMENT 'process, unique per start',
    pool LowCardinality(String) COMMENT 'weights, runtime, kda_state, mla_kv_cache, replication or transfer',
    used_bytes UInt64 COMMENT 'last value of the minute',
    limit_bytes Nullable(UInt64) COMMENT 'what the pool may use, NULL where no limit is known',
    used_ratio Nullable(Float64) COMMENT 'used_bytes / limit_bytes'
) AS
SELECT
    used.time AS time,
    used.service AS service,
    used.ep_group AS ep_group,
    used.ep_rank AS ep_rank,
    used.instance AS instance,
    used.pool AS pool,
    toUInt64(used.bytes) AS used_bytes,
    if(known.bytes > 0 AND used.minute_end <= known.time + INTERVAL 61 MINUTE, toUInt64(known.bytes), NULL)
        AS limit_bytes,
    used_bytes / limit_bytes AS used_ratio
FROM (
    SELECT
        CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
        toStartOfMinute(raw.time) + INTERVAL 1 MINUTE AS minute_end,
        service, ep_group, ep_rank, instance, pool,
        argMax(value, raw.time) AS bytes
    FROM ${database}.measurement AS raw
    WHERE metric = 'moe.memory.usage'
    GROUP BY time, minute_end, service, ep_group, ep_rank, instance, pool
) AS used
ASOF LEFT JOIN (
    SELECT service, instance, pool, measurement.time AS time, value AS bytes
    FROM ${database}.measurement
    WHERE metric = 'moe.memory.limit'
) AS known
ON used.service = known.service AND used.instance = known.instance AND used.pool = known.pool
    AND used.minute_end > known.time
