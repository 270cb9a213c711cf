-- Who waits for whom? The wait matrix: ep_rank is the rank that waited, peer_rank the one it waited for. In a
-- dispatch the rank that comes late waits least itself, so a slow rank is a large column and a small row. Waits are as
-- the engine counts them: SGLang with DeepEP adds up GPU clock cycles over warps that wait side by side, so compare
-- ranks with one another and read no time off it.
CREATE VIEW IF NOT EXISTS ${database}.dispatch_wait ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    stage LowCardinality(String) COMMENT 'dispatch or combine',
    ep_rank UInt16 COMMENT 'rank that waited, 0-based',
    peer_rank UInt16 COMMENT 'rank that it waited for, 0-based',
    wait_seconds Float64 COMMENT 'waited in the minute, seconds, as the engine counts it: with SGLang and DeepEP a sum over warps that wait side by side, which compares ranks and is no time'
) AS
SELECT time, service, ep_group, stage, ep_rank, toUInt16(position - 1) AS peer_rank, wait_ns / 1e9 AS wait_seconds
FROM (
    SELECT
        CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
        service, ep_group, stage, ep_rank,
        sumForEach(counts) AS wait_ns_by_peer
    FROM ${database}.indexed_count AS raw
    WHERE metric = 'moe.dispatch.wait'
    GROUP BY time, service, ep_group, stage, ep_rank
)
ARRAY JOIN wait_ns_by_peer AS wait_ns, arrayEnumerate(wait_ns_by_peer) AS position
