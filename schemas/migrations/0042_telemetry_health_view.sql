-- Can the other views be believed? One row per process seen within the raw retention.
-- A step that was under way when a window closed has its tokens in that window and some of its assignments in
-- the next: so assignments lie between what the tokens before the last window ask for and what all tokens do.
-- Processes that hold no experts count none, and are ok while they report. A process that another one replaced, and
-- the ranks that a group lost when it came back smaller, have left: nobody waits for them. Silent is who did not
-- report for the time of the settings, and for two and a half of its own windows.
CREATE VIEW IF NOT EXISTS ${database}.telemetry_health ${on_cluster} (
    service LowCardinality(String) COMMENT 'deployment',
    instance LowCardinality(String) COMMENT 'process, unique per start',
    component LowCardinality(String) COMMENT 'rank, scheduler, frontend or scraper',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    ep_rank UInt16 COMMENT 'EP rank, 0-based, the first of its engine where a process is no rank',
    first_seen DateTime64(3, 'UTC') COMMENT 'middle of the first stored window',
    last_seen DateTime64(3, 'UTC') COMMENT 'end of the last stored window',
    lag_seconds Float64 COMMENT 'now − last_seen',
    windows UInt64 COMMENT 'stored windows',
    moe_layers UInt16 COMMENT 'layers with routed experts',
    top_k UInt16 COMMENT 'experts per token',
    tokens UInt64 COMMENT 'token rows that are part of the load',
    excluded_tokens UInt64 COMMENT 'token rows that are not: padding, warm-up, dummy',
    assignments UInt64 COMMENT '(token, expert) assignments counted',
    expected_assignments UInt64 COMMENT 'tokens × top_k × moe_layers',
    missing_assignments Int64 COMMENT 'expected − counted: 0 at rest when nothing was lost or doubled',
    export_failures UInt64 COMMENT 'export attempts that were not acknowledged',
    export_seconds Nullable(Float64) COMMENT 'mean time to close, pack and send one window, failed attempts included, NULL where it was not said',
    most_waiting_bytes UInt64 COMMENT 'most bytes that waited for their acknowledgement',
    state LowCardinality(String) COMMENT 'ok, silent, left, no counts, or not conserved'
) AS
SELECT
    service,
    instance,
    if(said_component = '', 'rank', said_component) AS component,
    ep_group,
    ep_rank,
    first_seen,
    last_seen,
    lag_seconds,
    windows,
    moe_layers,
    top_k,
    tokens,
    excluded_tokens,
    assignments,
    expected_assignments,
    missing_assignments,
    export_failures,
    export_seconds,
    most_waiting_bytes,
    multiIf(
        is_silent AND (ep_rank >= size_now OR last_start >= last_seen), 'left',
        is_silent, 'silent',
        component != 'rank', 'ok',
        tokens > 0 AND assignments = 0, 'no counts',
        missing_assignments < 0, 'not conserved',
        missing_assignments > last_tokens * top_k * moe_layers, 'not conserved',
        'ok'
    ) AS state
FROM (
    SELECT
        service,
        instance,
        max(component) AS said_component,
        ep_group,
        ep_rank,
        min(window_time) AS first_seen,
        max(window_end) AS last_seen,
        dateDiff('millisecond', last_seen, now64(3, 'UTC')) / 1000 AS lag_seconds,
        -- No window is longer than an hour, the most that the setting interval_seconds takes.
        least(argMax(window_ms, window_end) / 1000, 3600) AS window_seconds,
        lag_seconds > greatest(${silent_after_seconds}, 2.5 * window_seconds) AS is_silent,
        count() AS windows,
        toUInt16(max(layers)) AS moe_layers,
        toUInt16(max(k)) AS top_k,
        sum(scheduled) AS tokens,
        argMax(scheduled, window_end) AS last_tokens,
        sum(left_out) AS excluded_tokens,
        sum(counted) AS assignments,
        tokens * top_k * moe_layers AS expected_assignments,
        toInt64(expected_assignments) - toInt64(assignments) AS missing_assignments,
        sum(failures) AS export_failures,
        if(sum(exports) = 0, NULL, sum(spent) / sum(exports)) AS export_seconds,
        max(waiting) AS most_waiting_bytes,
        max(size) AS own_size,
        argMaxIf(own_size, last_seen, own_size > 0) OVER (PARTITION BY service, ep_group) AS newest_size,
        if(newest_size = 0, 65536, newest_size) AS size_now,
        max(first_seen) OVER (PARTITION BY service, ep_group, ep_rank, said_component) AS last_start
    FROM (
        SELECT
            service, instance, max(component) AS component, ep_group, ep_rank, max(size) AS size,
            end_time AS window_end, min(time) AS window_time,
            2 * dateDiff('millisecond', window_time, window_end) AS window_ms,
            max(moe_layers) AS layers, max(top_k) AS k,
            sum(scheduled) AS scheduled, sum(left_out) AS left_out, sum(counted) AS counted, sum(failures) AS failures,
            sum(exports) AS exports, sum(spent) AS spent, max(waiting) AS waiting
        FROM (
            SELECT
                service, instance, '' AS component, ep_group, ep_rank, ep_size AS size, time, end_time,
                moe_layers, top_k, 0 AS scheduled, 0 AS left_out, assignments AS counted, 0 AS failures,
                0 AS exports, 0. AS spent, 0 AS waiting
            FROM ${database}.expert_load
            UNION ALL
            SELECT
                service, instance, '', ep_group, ep_rank, 0, time, end_time,
                0, 0, if(excluded = 'none', tokens, 0), if(excluded = 'none', 0, tokens), 0, 0, 0, 0., 0
            FROM ${database}.token_count
            UNION ALL
            SELECT
                service, instance, component, ep_group, ep_rank, ep_size, time, end_time,
                0, 0, 0, 0, 0, if(metric = 'moe.telemetry.export.failures', toUInt64(value), 0), 0, 0.,
                if(metric = 'moe.telemetry.queue.size', toUInt64(value), 0)
            FROM ${database}.measurement
            WHERE metric IN ('moe.telemetry.export.failures', 'moe.telemetry.queue.size')
            UNION ALL
            SELECT
                service, instance, component, ep_group, ep_rank, ep_size, time, end_time,
                0, 0, 0, 0, 0, 0, observations, total, 0
            FROM ${database}.distribution
            WHERE metric = 'moe.telemetry.export.duration'
        )
        WHERE time >= now64(3, 'UTC') - INTERVAL ${raw_ttl_hours} HOUR
        GROUP BY service, instance, ep_group, ep_rank, end_time
    )
    GROUP BY service, instance, ep_group, ep_rank
)
