-- How long do dispatch and combine take? Quantiles are interpolated inside the bucket, as Prometheus's
-- histogram_quantile does; points with other bounds are merged. Layer -1 is all layers together.
CREATE VIEW IF NOT EXISTS ${database}.dispatch_time ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    ep_rank UInt16 COMMENT 'EP rank, 0-based',
    phase LowCardinality(String) COMMENT 'prefill or decode',
    stage LowCardinality(String) COMMENT 'dispatch or combine',
    layer Int32 COMMENT 'layer index of the model, 0-based, -1: all of them',
    calls UInt64 COMMENT 'timed calls',
    total_seconds Float64 COMMENT 'their time together, waiting included',
    mean_seconds Float64 COMMENT 'total_seconds / calls',
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
    stage,
    layer,
    calls,
    total_seconds,
    total_seconds / calls AS mean_seconds,
    quantile_of(0.5, in_buckets, merged_bounds, up_to) AS p50_seconds,
    quantile_of(0.99, in_buckets, merged_bounds, up_to) AS p99_seconds
FROM (
    SELECT
        time, service, ep_group, ep_rank, phase, stage, layer,
        groupArray((bounds, part_counts, part_calls, part_seconds, is_derived)) AS all_parts,
        -- All layers together: as the rank says it, or else the sum over what it says by layer.
        arrayFilter(part -> part.5 = arrayMin(all_parts.5), all_parts) AS parts,
        arraySum(parts.3) AS calls,
        arraySum(parts.4) AS total_seconds,
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
            time, service, ep_group, ep_rank, phase, stage, shown.1 AS layer, shown.2 AS is_derived, bounds,
            sum(part.calls) AS part_calls, sum(part.seconds) AS part_seconds, sumForEach(part.counts) AS part_counts
        FROM (
            SELECT
                CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
                service, ep_group, ep_rank, phase, stage, layer, bounds,
                sum(observations) AS calls, sum(total) AS seconds, sumForEach(raw.counts) AS counts
            FROM ${database}.distribution AS raw
            WHERE metric = 'moe.dispatch.duration'
            GROUP BY time, service, ep_group, ep_rank, phase, stage, layer, bounds
        ) AS part
        ARRAY JOIN if(part.layer < 0, [(-1, 0)], [(part.layer, 0), (-1, 1)]) AS shown
        GROUP BY time, service, ep_group, ep_rank, phase, stage, layer, is_derived, bounds
    )
    GROUP BY time, service, ep_group, ep_rank, phase, stage, layer
)
WHERE calls > 0
