-- Both generations of the landing schema (DateTime64(9) and DateTime) pass through toDateTime64.
CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.expert_load_mv ${on_cluster} TO ${database}.expert_load AS
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
    ResourceAttributes['moe.ep.group'] AS ep_group,
    toUInt16OrZero(ResourceAttributes['moe.ep.rank']) AS ep_rank,
    toUInt16OrZero(ResourceAttributes['moe.ep.size']) AS ep_size,
    toUInt16OrZero(ResourceAttributes['moe.model.top_k']) AS top_k,
    toUInt16OrZero(ResourceAttributes['moe.model.moe_layers']) AS moe_layers,
    Attributes['moe.phase'] AS phase,
    toUInt16OrZero(Attributes['moe.layer']) AS layer,
    toUInt16(length(BucketCounts)) AS experts,
    Count AS assignments,
    BucketCounts AS tokens
FROM ${database}.otel_metrics_histogram
WHERE MetricName = 'moe.expert.tokens' AND AggregationTemporality = 1
