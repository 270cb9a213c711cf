CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.distribution_mv ${on_cluster} TO ${database}.distribution AS
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
    if(
        Attributes['gen_ai.request.model'] = '',
        ResourceAttributes['moe.model.name'],
        Attributes['gen_ai.request.model']
    ) AS model,
    Count AS observations,
    Sum AS total,
    ExplicitBounds AS bounds,
    BucketCounts AS counts
FROM ${database}.otel_metrics_histogram
WHERE AggregationTemporality = 1 AND MetricName IN (
        'moe.dispatch.duration',
        'moe.step.duration',
        'moe.step.tokens',
        'gen_ai.server.time_to_first_token',
        'gen_ai.server.time_per_output_token',
        'gen_ai.server.request.duration',
        'moe.request.queue.duration',
        'moe.request.inter_token_latency',
        'moe.telemetry.export.duration'
)
