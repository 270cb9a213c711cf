-- Who sends how much to whom? One row per rank and peer, seen from the rank. Bytes that a rank reports by layer only
-- are summed over the layers.
CREATE VIEW IF NOT EXISTS ${database}.rank_traffic ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    phase LowCardinality(String) COMMENT 'prefill or decode',
    ep_rank UInt16 COMMENT 'rank that reports, 0-based',
    peer_rank UInt16 COMMENT 'the other rank, 0-based',
    bytes_sent UInt64 COMMENT 'bytes that ep_rank sent to peer_rank, as ep_rank counted them',
    bytes_received UInt64 COMMENT 'bytes that ep_rank received from peer_rank, as ep_rank counted them',
    tokens UInt64 COMMENT 'tokens sent to peer_rank, each once per layer however many of its experts live there',
    assignments UInt64 COMMENT '(token, expert) assignments sent to peer_rank: tokens without deduplication'
) AS
SELECT
    time,
    service,
    ep_group,
    phase,
    ep_rank,
    toUInt16(position - 1) AS peer_rank,
    sent AS bytes_sent,
    received AS bytes_received,
    once AS tokens,
    each AS assignments
FROM (
    SELECT
        CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
        service, ep_group, phase, ep_rank,
        max(length(counts)) AS peers,
        countIf(metric = 'moe.rank.io' AND layer < 0) > 0 AS has_totals,
        sumForEachIf(counts, metric = 'moe.rank.io' AND direction = 'transmit' AND layer < 0) AS total_to,
        sumForEachIf(counts, metric = 'moe.rank.io' AND direction = 'receive' AND layer < 0) AS total_from,
        sumForEachIf(counts, metric = 'moe.rank.io' AND direction = 'transmit' AND layer >= 0) AS layers_to,
        sumForEachIf(counts, metric = 'moe.rank.io' AND direction = 'receive' AND layer >= 0) AS layers_from,
        sumForEachIf(counts, metric = 'moe.rank.tokens') AS tokens_to,
        sumForEachIf(counts, metric = 'moe.rank.assignments') AS assignments_to
    FROM ${database}.indexed_count AS raw
    WHERE metric IN ('moe.rank.io', 'moe.rank.tokens', 'moe.rank.assignments')
    GROUP BY time, service, ep_group, phase, ep_rank
)
ARRAY JOIN
    arrayResize(if(has_totals, total_to, layers_to), peers) AS sent,
    arrayResize(if(has_totals, total_from, layers_from), peers) AS received,
    arrayResize(tokens_to, peers) AS once,
    arrayResize(assignments_to, peers) AS each,
    arrayEnumerate(arrayResize(tokens_to, peers)) AS position
