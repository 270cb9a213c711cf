-- Counters as deltas, states as they are. What comes the other way round can be no part of a sum and stays raw.
-- A state may be an up-down counter or a gauge, whatever the registry calls it: `measurement_of_gauges_mv` takes the
-- same ones.
CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.measurement_mv ${on_cluster} TO ${database}.measurement AS
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
    ResourceAttributes['host.name'] AS host,
    ResourceAttributes['moe.ep.group'] AS ep_group,
    toUInt16OrZero(ResourceAttributes['moe.ep.rank']) AS ep_rank,
    toUInt16OrZero(ResourceAttributes['moe.ep.size']) AS ep_size,
    MetricName AS metric,
    Attributes['moe.phase'] AS phase,
    toInt32OrDefault(Attributes['moe.layer'], toInt32(-1)) AS layer,
    Attributes['moe.pool'] AS pool,
    Attributes['moe.reason'] AS reason,
    Attributes['moe.result'] AS result,
    Attributes['moe.contract'] AS contract,
    Attributes['network.io.direction'] AS direction,
    Attributes['hw.id'] AS gpu,
    Value AS value
FROM ${database}.otel_metrics_sum
WHERE (
    AggregationTemporality = 1 AND MetricName IN (
        'moe.kda_state.copies',
        'moe.prefix_cache.tokens',
        'moe.requests.finished',
        'moe.request.output_tokens',
        'hw.gpu.io',
        'moe.telemetry.export.failures'
    )
) OR (
    AggregationTemporality = 2 AND MetricName IN (
        'moe.expert.weight.size',
        'moe.memory.usage',
        'moe.memory.limit',
        'moe.kda_state.slots',
        'moe.kda_state.slots.limit',
        'moe.mla_kv_cache.blocks',
        'moe.mla_kv_cache.blocks.limit',
        'moe.requests.running',
        'moe.requests.waiting',
        'hw.gpu.utilization',
        'hw.gpu.memory.usage',
        'hw.gpu.memory.limit',
        'moe.telemetry.queue.size'
    )
)
