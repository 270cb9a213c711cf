-- What would a gateway want to know of each EP group before it sends a request there? One row a minute, from the views of
-- each subject; what nobody reported is NULL. Two caches are two numbers, and so are the phases. GET /v1/signals adds
-- ages, confidence, limits as configured, and the price.
CREATE VIEW IF NOT EXISTS ${database}.routing_signals ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    role LowCardinality(String) COMMENT 'prefill, decode or mixed, as its processes say',
    frontend_host LowCardinality(String) COMMENT 'machine of a front end of the group, empty where none reports',
    frontend_instance String COMMENT 'that front end, unique per start, empty where none reports',
    newest_window DateTime64(3, 'UTC') COMMENT 'end of the newest window of the minute of any process',
    windows UInt64 COMMENT 'ends of windows in the minute, each counted once over all processes',
    processes UInt64 COMMENT 'ranks, front ends and schedulers that reported, restarts counted once: fewer than before in a minute that has only begun',
    prompt_tokens UInt64 COMMENT 'tokens looked up in the prefix cache',
    prefix_hit_ratio Nullable(Float64) COMMENT '(hit + partial hit) / looked up, 0 to 1',
    prefix_partial_hit_ratio Nullable(Float64) COMMENT 'partial hit / looked up, 0 to 1',
    prefill_tokens_per_second Nullable(Float64) COMMENT 'prompt tokens computed a second, over all ranks',
    decode_tokens_per_second Nullable(Float64) COMMENT 'output tokens computed a second, over all ranks',
    kda_slots_free Nullable(UInt64) COMMENT 'KDA state slots that nobody holds, over the ranks that report caches',
    kda_slots_limit Nullable(UInt64) COMMENT 'KDA state slots that exist, over the same ranks',
    mla_blocks_free Nullable(UInt64) COMMENT 'MLA KV cache blocks that nobody holds, over the ranks that report caches, never to be added to KDA state slots',
    mla_blocks_limit Nullable(UInt64) COMMENT 'MLA KV cache blocks that exist, over the same ranks',
    requests_running Nullable(Float64) COMMENT 'requests being computed, mean over the minute',
    requests_waiting Nullable(Float64) COMMENT 'requests queued, mean over the minute',
    first_tokens UInt64 COMMENT 'requests that got their first token: observations of ttft',
    ttft_p50_seconds Nullable(Float64) COMMENT 'time to first token, 50th percentile, of the slowest model',
    ttft_p90_seconds Nullable(Float64) COMMENT 'time to first token, 90th percentile, of the slowest model',
    tpot_p50_seconds Nullable(Float64) COMMENT 'time per output token, 50th percentile, of the slowest model',
    tpot_p90_seconds Nullable(Float64) COMMENT 'time per output token, 90th percentile, of the slowest model',
    requests_finished UInt64 COMMENT 'requests that finished',
    good_tokens UInt64 COMMENT 'output tokens of requests that kept the latency contract',
    rank_seconds Float64 COMMENT 'time that the ranks ran: times a price per rank-second / good_tokens is the cost of one'
) AS
SELECT
    time,
    service,
    ep_group,
    anyIf(word, name = 'role') AS role,
    maxIf(word, name = 'frontend_host') AS frontend_host,
    maxIf(word, name = 'frontend_instance') AS frontend_instance,
    fromUnixTimestamp64Milli(toInt64(maxIf(value, name = 'newest_ms')), 'UTC') AS newest_window,
    toUInt64(sumIf(value, name = 'windows')) AS windows,
    toUInt64(sumIf(value, name = 'processes')) AS processes,
    toUInt64(sumIf(value, name = 'looked_up')) AS prompt_tokens,
    sumOrNullIf(value, name = 'found') / nullIf(prompt_tokens, 0) AS prefix_hit_ratio,
    sumOrNullIf(value, name = 'partial') / nullIf(prompt_tokens, 0) AS prefix_partial_hit_ratio,
    sumOrNullIf(value, name = 'prefill') AS prefill_tokens_per_second,
    sumOrNullIf(value, name = 'decode') AS decode_tokens_per_second,
    toUInt64(sumOrNullIf(value, name = 'kda_free')) AS kda_slots_free,
    toUInt64(sumOrNullIf(value, name = 'kda_limit')) AS kda_slots_limit,
    toUInt64(sumOrNullIf(value, name = 'mla_free')) AS mla_blocks_free,
    toUInt64(sumOrNullIf(value, name = 'mla_limit')) AS mla_blocks_limit,
    sumOrNullIf(value, name = 'running') AS requests_running,
    sumOrNullIf(value, name = 'waiting') AS requests_waiting,
    toUInt64(sumIf(value, name = 'ttft_count')) AS first_tokens,
    maxOrNullIf(value, name = 'ttft_p50') AS ttft_p50_seconds,
    maxOrNullIf(value, name = 'ttft_p90') AS ttft_p90_seconds,
    maxOrNullIf(value, name = 'tpot_p50') AS tpot_p50_seconds,
    maxOrNullIf(value, name = 'tpot_p90') AS tpot_p90_seconds,
    toUInt64(sumIf(value, name = 'finished')) AS requests_finished,
    toUInt64(sumIf(value, name = 'good_tokens')) AS good_tokens,
    sumIf(value, name = 'rank_seconds') AS rank_seconds
FROM (
    SELECT time, service, ep_group, one.1 AS name, one.2 AS word, 0. AS value
    FROM (
        -- Every process sends this state once in each window.
        SELECT
            CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
            service, ep_group,
            [
                ('role', toString(any(raw.role))),
                ('frontend_host', toString(argMaxIf(raw.host, raw.time, raw.component = 'frontend'))),
                ('frontend_instance', toString(argMaxIf(raw.instance, raw.time, raw.component = 'frontend')))
            ] AS words
        FROM ${database}.measurement AS raw
        WHERE raw.metric = 'moe.telemetry.queue.size'
        GROUP BY time, service, ep_group
    )
    ARRAY JOIN words AS one
    UNION ALL
    SELECT time, service, ep_group, one.1 AS name, '' AS word, one.2 AS value
    FROM (
        SELECT
            CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
            service, ep_group,
            [
                ('newest_ms', toFloat64(toUnixTimestamp64Milli(max(raw.end_time)))),
                ('windows', toFloat64(uniqExact(raw.end_time))),
                ('processes', toFloat64(uniqExact((raw.component, raw.ep_rank, raw.host))))
            ] AS numbers
        FROM ${database}.measurement AS raw
        WHERE raw.metric = 'moe.telemetry.queue.size'
        GROUP BY time, service, ep_group
    )
    ARRAY JOIN numbers AS one
    UNION ALL
    SELECT time, service, ep_group, one.1 AS name, '' AS word, one.2 AS value
    FROM ${database}.prefix_cache
    ARRAY JOIN [
        ('looked_up', toFloat64(hit_tokens + partial_hit_tokens + miss_tokens)),
        ('found', toFloat64(hit_tokens + partial_hit_tokens)),
        ('partial', toFloat64(partial_hit_tokens))
    ] AS one
    UNION ALL
    SELECT time, service, ep_group, toString(phase) AS name, '' AS word, tokens_per_second AS value
    FROM ${database}.tokens_per_second
    WHERE excluded = 'none'
    UNION ALL
    -- Where both limits are the same, both caches are lent from one set of blocks: free is what neither holds.
    SELECT time, service, ep_group, one.1 AS name, '' AS word, toFloat64(assumeNotNull(one.2)) AS value
    FROM ${database}.cache_state
    ARRAY JOIN [
        ('kda_free', if(kda_slots IS NULL OR kda_slots_limit IS NULL, NULL, greatest(
            toInt64(kda_slots_limit) - toInt64(kda_slots)
            - if(kda_slots_limit = mla_blocks_limit, toInt64(mla_blocks), 0), 0))),
        ('kda_limit', toInt64(kda_slots_limit)),
        ('mla_free', if(mla_blocks IS NULL OR mla_blocks_limit IS NULL, NULL, greatest(
            toInt64(mla_blocks_limit) - toInt64(mla_blocks)
            - if(kda_slots_limit = mla_blocks_limit, toInt64(kda_slots), 0), 0))),
        ('mla_limit', toInt64(mla_blocks_limit))
    ] AS one
    WHERE one.2 IS NOT NULL
    UNION ALL
    SELECT time, service, ep_group, one.1 AS name, '' AS word, one.2 AS value
    FROM ${database}.request_load
    ARRAY JOIN [('running', running), ('waiting', waiting)] AS one
    UNION ALL
    SELECT time, service, ep_group, one.1 AS name, '' AS word, assumeNotNull(one.2) AS value
    FROM ${database}.request_latency
    ARRAY JOIN [
        (concat(metric, '_count'), toNullable(toFloat64(observations))),
        (concat(metric, '_p50'), p50_seconds),
        (concat(metric, '_p90'), p90_seconds)
    ] AS one
    WHERE metric IN ('ttft', 'tpot') AND one.2 IS NOT NULL
    UNION ALL
    SELECT time, service, ep_group, one.1 AS name, '' AS word, one.2 AS value
    FROM ${database}.goodput
    ARRAY JOIN [
        ('finished', toFloat64(requests)),
        ('good_tokens', toFloat64(good_tokens)),
        ('rank_seconds', ranks * covered_seconds)
    ] AS one
)
GROUP BY time, service, ep_group
