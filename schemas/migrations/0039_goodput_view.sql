-- How much of the work was good? Requests that finished, and their output tokens, in all and within the latency
-- contract of the settings. With a price per rank-hour, ranks / 60 × price / good_tokens × 1000 is the cost of a
-- thousand good tokens.
CREATE VIEW IF NOT EXISTS ${database}.goodput ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    requests UInt64 COMMENT 'requests that finished',
    good_requests UInt64 COMMENT 'those that kept the contract',
    output_tokens UInt64 COMMENT 'output tokens of finished requests',
    good_tokens UInt64 COMMENT 'those of requests that kept the contract',
    ranks UInt64 COMMENT 'ranks of the group, as its processes say'
) AS
SELECT
    CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
    service,
    ep_group,
    toUInt64(sumIf(value, metric = 'moe.requests.finished')) AS requests,
    toUInt64(sumIf(value, metric = 'moe.requests.finished' AND contract = 'met')) AS good_requests,
    toUInt64(sumIf(value, metric = 'moe.request.output_tokens')) AS output_tokens,
    toUInt64(sumIf(value, metric = 'moe.request.output_tokens' AND contract = 'met')) AS good_tokens,
    toUInt64(max(ep_size)) AS ranks
FROM ${database}.measurement AS raw
WHERE metric IN ('moe.requests.finished', 'moe.request.output_tokens', 'moe.telemetry.queue.size')
GROUP BY time, service, ep_group
HAVING countIf(metric != 'moe.telemetry.queue.size') > 0
