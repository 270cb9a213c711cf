-- How long does a forward pass take, and how many tokens does it compute? Quantiles are interpolated inside the
-- bucket, as Prometheus's histogram_quantile does; points with other bounds are merged.
CREATE VIEW IF NOT EXISTS ${database}.step_time ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    ep_rank UInt16 COMMENT 'EP rank, 0-based',
    phase LowCardinality(String) COMMENT 'prefill or decode',
    steps UInt64 COMMENT 'forward passes',
    tokens UInt64 COMMENT 'tokens that they computed',
    total_seconds Float64 COMMENT 'their time together',
    mean_seconds Float64 COMMENT 'total_seconds / steps',
    p50_seconds Nullable(Float64) COMMENT '50th percentile, NULL where the sender has no buckets',
    p99_seconds Nullable(Float64) COMMENT '99th percentile, NULL where the sender has no buckets'
) AS
WITH
    -- Observations up to x: linear inside a bucket, of which the first begins at 0.
    (x, bounds, counts, full) -> arraySum(arraySlice(counts, 1, full)) + multiIf(
        full = length(bounds), 0,
        bounds[full + 1] = x, toFloat64(counts[full + 1]),
        counts[full + 1] * (x - if(full = 0, 0, bounds[full])) / (bounds[full + 1] - if(full = 0, 0, bounds[full]))
    ) AS count_up_to,
    -- As Prometheus's histogram_quantile: linear inside the bucket; beyond the last bound, that bound.
    (q, observed, bounds, up_to, full) -> multiIf(
        observed = 0 OR empty(bounds), NULL,
        full = length(bounds), bounds[full],
        full = 0 AND bounds[1] <= 0, bounds[1],
        full = 0, bounds[1] * q * observed / up_to[1],
        bounds[full] + (bounds[full + 1] - bounds[full]) * (q * observed - up_to[full]) / (up_to[full + 1] - up_to[full])
    ) AS interpolate,
    (q, observed, bounds, up_to) -> interpolate(
        q, observed, bounds, up_to, arrayCount(n -> n < q * observed, up_to)
    ) AS quantile_of
SELECT
    time,
    service,
    ep_group,
    ep_rank,
    phase,
    steps,
    tokens,
    total_seconds,
    total_seconds / steps AS mean_seconds,
    quantile_of(0.5, in_buckets, merged_bounds, up_to) AS p50_seconds,
    quantile_of(0.99, in_buckets, merged_bounds, up_to) AS p99_seconds
FROM (
    SELECT
        time, service, ep_group, ep_rank, phase,
        sumIf(part_steps, metric = 'moe.step.duration') AS steps,
        sumIf(part_total, metric = 'moe.step.duration') AS total_seconds,
        toUInt64(sumIf(part_total, metric = 'moe.step.tokens')) AS tokens,
        groupArrayIf((bounds, part_counts), metric = 'moe.step.duration') AS parts,
        -- Nearly always all senders have the same bounds.
        if(
            length(parts) = 1,
            parts[1].1,
            arraySort(arrayDistinct(arrayFlatten(arrayMap(part -> part.1, parts))))
        ) AS merged_bounds,
        if(
            length(parts) = 1,
            arrayMap(n -> toFloat64(n), arrayCumSum(arraySlice(parts[1].2, 1, length(merged_bounds)))),
            arrayMap(
                x -> arraySum(
                    part -> count_up_to(x, part.1, part.2, arrayCount(bound -> bound < x, part.1)), parts
                ),
                merged_bounds
            )
        ) AS up_to,
        arraySum(part -> arraySum(part.2), parts) AS in_buckets
    FROM (
        SELECT
            CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
            service, ep_group, ep_rank, phase, metric, bounds,
            sum(observations) AS part_steps, sum(total) AS part_total, sumForEach(raw.counts) AS part_counts
        FROM ${database}.distribution AS raw
        WHERE metric IN ('moe.step.duration', 'moe.step.tokens')
        GROUP BY time, service, ep_group, ep_rank, phase, metric, bounds
    )
    GROUP BY time, service, ep_group, ep_rank, phase
)
WHERE steps > 0
