CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.indexed_count_mv ${on_cluster} TO ${database}.indexed_count AS
SELECT
    fromUnixTimestamp64Milli(
        intDiv(
            if(toUnixTimestamp(StartTimeUnix) = 0, 2, 1) * toUnixTimestamp64Milli(toDateTime64(TimeUnix, 3, 'UTC'))
            + toUnixTimestamp64Milli(toDateTime64(StartTimeUnix, 3, 'UTC')),
            2
        ),
        'UTC'
    ) AS time,
    toDateTime64(if(toUnixTimestamp(StartTimeUnix) = 0, TimeUnix, StartTimeUnix), 3, 'UTC') AS start_time,
    toDateTime64(TimeUnix, 3, 'UTC') AS end_time,
    ServiceName AS service,
    ResourceAttributes['service.instance.id'] AS instance,
    if(ResourceAttributes['moe.component'] = '', 'rank', ResourceAttributes['moe.component']) AS component,
    ResourceAttributes['moe.role'] AS role,
    ResourceAttributes['moe.engine'] AS engine,
    ResourceAttributes['moe.ep.group'] AS ep_group,
    toUInt16OrZero(ResourceAttributes['moe.ep.rank']) AS ep_rank,
    toUInt16OrZero(ResourceAttributes['moe.ep.size']) AS ep_size,
    MetricName AS metric,
    Attributes['moe.phase'] AS phase,
    toInt32OrDefault(Attributes['moe.layer'], toInt32(-1)) AS layer,
    Attributes['moe.stage'] AS stage,
    Attributes['moe.reason'] AS reason,
    Attributes['moe.source'] AS source,
    Attributes['network.io.direction'] AS direction,
    BucketCounts AS counts
FROM ${database}.otel_metrics_histogram
WHERE AggregationTemporality = 1 AND MetricName IN (
        'moe.expert.duration',
        'moe.expert.group.duration',
        'moe.expert.failovers',
        'moe.rank.io',
        'moe.rank.tokens',
        'moe.rank.assignments',
        'moe.dispatch.wait'
)
