-- How much of the work was good, and what ran for it? Requests that finished, and their output tokens, in all and
-- within the latency contract of the settings. A group in which no request finished has rows of zeros: the ranks of a
-- prefill group, and idle ones, are paid for as well. With a price per rank-hour a thousand good tokens cost
-- price × sum(ranks × covered_seconds) / 3600 / nullIf(sum(good_tokens), 0) × 1000, over all groups and any minutes.
CREATE VIEW IF NOT EXISTS ${database}.goodput ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    requests UInt64 COMMENT 'requests that finished',
    good_requests UInt64 COMMENT 'those that kept the contract',
    output_tokens UInt64 COMMENT 'output tokens of finished requests',
    good_tokens UInt64 COMMENT 'those of requests that kept the contract',
    ranks UInt64 COMMENT 'size of the group, as its processes say: the largest one that any of them names',
    covered_seconds Float64 COMMENT 'time that the windows of its ranks cover whose middle lies in the minute, mean over ranks: above 60 where windows are longer, 0 where no rank reports'
) AS
SELECT
    CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
    service,
    ep_group,
    toUInt64(sumIf(value, metric = 'moe.requests.finished')) AS requests,
    toUInt64(sumIf(value, metric = 'moe.requests.finished' AND contract = 'met')) AS good_requests,
    toUInt64(sumIf(value, metric = 'moe.request.output_tokens')) AS output_tokens,
    toUInt64(sumIf(value, metric = 'moe.request.output_tokens' AND contract = 'met')) AS good_tokens,
    toUInt64(max(ep_size)) AS ranks,
    -- Every rank sends this state once in each window.
    if(
        ranks = 0,
        0,
        sumIf(
            dateDiff('millisecond', start_time, end_time),
            metric = 'moe.telemetry.queue.size' AND component = 'rank'
        ) / 1000 / ranks
    ) AS covered_seconds
FROM ${database}.measurement AS raw
WHERE metric IN ('moe.requests.finished', 'moe.request.output_tokens', 'moe.telemetry.queue.size')
GROUP BY time, service, ep_group
