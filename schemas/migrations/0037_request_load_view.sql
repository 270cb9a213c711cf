-- How many requests run and wait? Each process counts with its mean over its windows, by their length, and for the
-- part of the minute's time that it covers: one that another replaced within the minute is not there twice. A process
-- that begins or ends with the group's time, give or take a window of its own, is there from the beginning or to the end.
CREATE VIEW IF NOT EXISTS ${database}.request_load ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    running Float64 COMMENT 'requests being computed',
    waiting Float64 COMMENT 'requests queued'
) AS
SELECT
    time,
    service,
    ep_group,
    arraySum(one -> one.1 * one.3, by_process) AS running,
    arraySum(one -> one.2 * one.3, by_process) AS waiting
FROM (
    SELECT
        time,
        service,
        ep_group,
        min(first_ms) AS group_first_ms,
        max(last_ms) AS group_last_ms,
        arrayMap(
            one -> (
                one.1,
                one.2,
                -- A state without a window, as a gauge may be, says nothing about how long.
                if(
                    one.5 = 0 OR group_last_ms = group_first_ms,
                    1,
                    (
                        if(group_last_ms - one.4 <= one.5, group_last_ms, one.4)
                        - if(one.3 - group_first_ms <= one.5, group_first_ms, one.3)
                    ) / (group_last_ms - group_first_ms)
                )
            ),
            groupArray((mean_running, mean_waiting, first_ms, last_ms, longest_ms))
        ) AS by_process
    FROM (
        SELECT
            CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
            service, ep_group, instance,
            min(toUnixTimestamp64Milli(start_time)) AS first_ms,
            max(toUnixTimestamp64Milli(end_time)) AS last_ms,
            max(dateDiff('millisecond', start_time, end_time)) AS longest_ms,
            ifNull(
                sumOrNullIf(value * greatest(dateDiff('millisecond', start_time, end_time), 1), metric = 'moe.requests.running')
                / sumOrNullIf(greatest(dateDiff('millisecond', start_time, end_time), 1), metric = 'moe.requests.running'),
                0
            ) AS mean_running,
            ifNull(
                sumOrNullIf(value * greatest(dateDiff('millisecond', start_time, end_time), 1), metric = 'moe.requests.waiting')
                / sumOrNullIf(greatest(dateDiff('millisecond', start_time, end_time), 1), metric = 'moe.requests.waiting'),
                0
            ) AS mean_waiting
        FROM ${database}.measurement AS raw
        WHERE metric IN ('moe.requests.running', 'moe.requests.waiting')
        GROUP BY time, service, ep_group, instance
    )
    GROUP BY time, service, ep_group
)
