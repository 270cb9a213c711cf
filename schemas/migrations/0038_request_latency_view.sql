-- How long do requests wait? TTFT, TPOT, ITL, queue and end to end, over all processes of a group and role. A request
-- of one output token has no TPOT and is in no number of it. Quantiles are interpolated inside the bucket, as
-- Prometheus's histogram_quantile does; points with other bounds are merged.
CREATE VIEW IF NOT EXISTS ${database}.request_latency ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    role LowCardinality(String) COMMENT 'prefill, decode or mixed',
    model LowCardinality(String) COMMENT 'model that the requests asked for',
    metric LowCardinality(String) COMMENT 'ttft, tpot, itl, queue or e2e',
    observations UInt64 COMMENT 'requests, gaps between tokens for itl',
    mean_seconds Float64 COMMENT 'mean, exact',
    p50_seconds Nullable(Float64) COMMENT '50th percentile, NULL where the sender has no buckets',
    p90_seconds Nullable(Float64) COMMENT '90th percentile, NULL where the sender has no buckets',
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
    role,
    model,
    metric,
    observed AS observations,
    seconds / observed AS mean_seconds,
    quantile_of(0.5, in_buckets, merged_bounds, up_to) AS p50_seconds,
    quantile_of(0.9, in_buckets, merged_bounds, up_to) AS p90_seconds,
    quantile_of(0.99, in_buckets, merged_bounds, up_to) AS p99_seconds
FROM (
    SELECT
        time, service, ep_group, role, model, metric,
        sum(part_observed) AS observed,
        sum(part_seconds) AS seconds,
        groupArray((bounds, part_counts)) AS parts,
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
            service, ep_group, role, model,
            transform(
                toString(raw.metric),
                [
                    'gen_ai.server.time_to_first_token', 'gen_ai.server.time_per_output_token',
                    'moe.request.inter_token_latency', 'moe.request.queue.duration', 'gen_ai.server.request.duration'
                ],
                ['ttft', 'tpot', 'itl', 'queue', 'e2e'],
                ''
            ) AS metric,
            bounds,
            sum(raw.observations) AS part_observed, sum(total) AS part_seconds, sumForEach(raw.counts) AS part_counts
        FROM ${database}.distribution AS raw
        WHERE raw.metric IN (
            'gen_ai.server.time_to_first_token', 'gen_ai.server.time_per_output_token',
            'moe.request.inter_token_latency', 'moe.request.queue.duration', 'gen_ai.server.request.duration'
        )
        GROUP BY time, service, ep_group, role, model, metric, bounds
    )
    GROUP BY time, service, ep_group, role, model, metric
)
WHERE observed > 0
