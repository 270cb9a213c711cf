-- How many tokens does each rank compute? Excluded rows are those that are no part of the load. The rate is over the
-- time that the rank's windows of the minute cover, so a minute that has only begun is not underrated. What a scraper
-- says of a rank counts only in minutes in which the rank does not report itself.
CREATE VIEW IF NOT EXISTS ${database}.tokens_per_second ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    ep_rank UInt16 COMMENT 'EP rank, 0-based',
    phase LowCardinality(String) COMMENT 'prefill, decode, or empty where excluded rows have none',
    excluded LowCardinality(String) COMMENT 'none, or why the rows are no part of the load',
    tokens UInt64 COMMENT 'token rows in the minute',
    tokens_per_second Float64 COMMENT 'tokens / seconds that the windows cover'
) AS
SELECT
    time,
    service,
    ep_group,
    ep_rank,
    kind.1 AS phase,
    kind.2 AS excluded,
    rows AS tokens,
    if(covered_ms > 0, rows * 1000 / covered_ms, 0) AS tokens_per_second
FROM (
    SELECT
        CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
        service, ep_group, ep_rank,
        max(toUnixTimestamp64Milli(end_time))
            - min(2 * toUnixTimestamp64Milli(raw.time) - toUnixTimestamp64Milli(end_time)) AS covered_ms,
        countIf(component = 'rank') > 0 AS reports_itself,
        sumMapIf([(phase, excluded)], [raw.tokens], component = 'rank') AS own,
        sumMapIf([(phase, excluded)], [raw.tokens], component != 'rank') AS said_by_others,
        if(reports_itself, own, said_by_others) AS by_kind
    FROM ${database}.token_count AS raw
    GROUP BY time, service, ep_group, ep_rank
)
ARRAY JOIN by_kind.1 AS kind, by_kind.2 AS rows
