CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.token_count_mv ${on_cluster} TO ${database}.token_count AS
SELECT
    fromUnixTimestamp64Milli(
        intDiv(
            if(toUnixTimestamp(StartTimeUnix) = 0, 2, 1) * toUnixTimestamp64Milli(toDateTime64(TimeUnix, 3, 'UTC'))
            + toUnixTimestamp64Milli(toDateTime64(StartTimeUnix, 3, 'UTC')),
            2
        ),
        'UTC'
    ) AS time,
    toDateTime64(TimeUnix, 3, 'UTC') AS end_time,
    ServiceName AS service,
    ResourceAttributes['service.instance.id'] AS instance,
    if(ResourceAttributes['moe.component'] = '', 'rank', ResourceAttributes['moe.component']) AS component,
    ResourceAttributes['moe.ep.group'] AS ep_group,
    toUInt16OrZero(ResourceAttributes['moe.ep.rank']) AS ep_rank,
    Attributes['moe.phase'] AS phase,
    Attributes['moe.excluded'] AS excluded,
    toUInt64(Value) AS tokens
FROM ${database}.otel_metrics_sum
WHERE MetricName = 'moe.tokens' AND AggregationTemporality = 1
