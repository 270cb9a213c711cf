CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.expert_replicas_mv ${on_cluster} TO ${database}.expert_replicas AS
SELECT
    fromUnixTimestamp64Milli(
        intDiv(
            if(toUnixTimestamp(StartTimeUnix) = 0, 2, 1) * toUnixTimestamp64Milli(toDateTime64(TimeUnix, 3, 'UTC'))
            + toUnixTimestamp64Milli(toDateTime64(StartTimeUnix, 3, 'UTC')),
            2
        ),
        'UTC'
    ) AS time,
    ServiceName AS service,
    ResourceAttributes['moe.ep.group'] AS ep_group,
    toUInt16OrZero(ResourceAttributes['moe.ep.rank']) AS ep_rank,
    toUInt16OrZero(ResourceAttributes['moe.ep.size']) AS ep_size,
    toUInt16OrZero(Attributes['moe.layer']) AS layer,
    toUInt16(length(BucketCounts)) AS experts,
    BucketCounts AS replicas
FROM ${database}.otel_metrics_histogram
WHERE MetricName = 'moe.expert.replicas'
