-- How many requests run and wait? The mean over the windows of the minute, summed over the processes of the group.
CREATE VIEW IF NOT EXISTS ${database}.request_load ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    running Float64 COMMENT 'requests being computed',
    waiting Float64 COMMENT 'requests queued'
) AS
SELECT time, service, ep_group, sum(mean_running) AS running, sum(mean_waiting) AS waiting
FROM (
    SELECT
        CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
        service, ep_group, instance,
        ifNull(avgOrNullIf(value, metric = 'moe.requests.running'), 0) AS mean_running,
        ifNull(avgOrNullIf(value, metric = 'moe.requests.waiting'), 0) AS mean_waiting
    FROM ${database}.measurement AS raw
    WHERE metric IN ('moe.requests.running', 'moe.requests.waiting')
    GROUP BY time, service, ep_group, instance
)
GROUP BY time, service, ep_group
