-- How full are the KDA state slots and the MLA KV cache? Two numbers, never one: KDA state is copied on write, the MLA
-- cache grows. States at the end of the minute; of a limit the last one known within an hour counts.
CREATE VIEW IF NOT EXISTS ${database}.cache_state ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    ep_rank UInt16 COMMENT 'EP rank, 0-based',
    instance LowCardinality(String) COMMENT 'process, unique per start',
    kda_slots Nullable(UInt64) COMMENT 'KDA state slots in use, NULL where the process has none',
    kda_slots_limit Nullable(UInt64) COMMENT 'KDA state slots that exist',
    kda_copies_on_write UInt64 COMMENT 'slots copied in the minute because a request branched',
    kda_copies_checkpoint UInt64 COMMENT 'slots copied in the minute to keep a prefix',
    mla_blocks Nullable(UInt64) COMMENT 'MLA KV cache blocks in use, NULL where the process has none',
    mla_blocks_limit Nullable(UInt64) COMMENT 'MLA KV cache blocks that exist'
) AS
WITH used.minute_end <= known.time + INTERVAL 61 MINUTE AS is_fresh
SELECT
    used.time AS time,
    used.service AS service,
    used.ep_group AS ep_group,
    used.ep_rank AS ep_rank,
    used.instance AS instance,
    maxOrNullIf(toUInt64(used.last), used.metric = 'moe.kda_state.slots') AS kda_slots,
    maxOrNullIf(toUInt64(known.units), used.metric = 'moe.kda_state.slots' AND is_fresh) AS kda_slots_limit,
    toUInt64(sumIf(used.sum, used.metric = 'moe.kda_state.copies' AND used.reason = 'copy_on_write'))
        AS kda_copies_on_write,
    toUInt64(sumIf(used.sum, used.metric = 'moe.kda_state.copies' AND used.reason = 'checkpoint'))
        AS kda_copies_checkpoint,
    maxOrNullIf(toUInt64(used.last), used.metric = 'moe.mla_kv_cache.blocks') AS mla_blocks,
    maxOrNullIf(toUInt64(known.units), used.metric = 'moe.mla_kv_cache.blocks' AND is_fresh) AS mla_blocks_limit
FROM (
    SELECT
        CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
        toStartOfMinute(raw.time) + INTERVAL 1 MINUTE AS minute_end,
        service, ep_group, ep_rank, instance, metric, reason,
        argMax(value, raw.time) AS last,
        sum(value) AS sum
    FROM ${database}.measurement AS raw
    WHERE metric IN ('moe.kda_state.slots', 'moe.kda_state.copies', 'moe.mla_kv_cache.blocks')
    GROUP BY time, minute_end, service, ep_group, ep_rank, instance, metric, reason
) AS used
ASOF LEFT JOIN (
    SELECT
        service, instance, measurement.time AS time, value AS units,
        if(measurement.metric = 'moe.kda_state.slots.limit', 'moe.kda_state.slots', 'moe.mla_kv_cache.blocks') AS metric
    FROM ${database}.measurement
    WHERE measurement.metric IN ('moe.kda_state.slots.limit', 'moe.mla_kv_cache.blocks.limit')
) AS known
ON used.service = known.service AND used.instance = known.instance AND used.metric = known.metric
    AND used.minute_end > known.time
GROUP BY time, service, ep_group, ep_rank, instance
