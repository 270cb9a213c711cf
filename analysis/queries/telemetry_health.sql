-- Can the numbers be believed? One row per process.
-- Parameters: service (empty: all of them).
-- service, instance, component, ep_group, ep_rank  who reports
-- first_ms, last_ms          middle of its first window and end of its last one, Unix ms
-- lag_seconds                time since the end of its last window
-- windows                    stored windows
-- tokens, excluded_tokens    token rows that are part of the load, and those that are not
-- assignments                (token, expert) assignments counted
-- expected_assignments       tokens × top-k × layers with routed experts
-- missing_assignments        expected − counted
-- export_failures            export attempts that were not acknowledged
-- export_seconds             mean time to close, pack and send one window; −1 where it was not said
-- most_waiting_bytes         most bytes that waited for their acknowledgement
-- state                      ok, silent, left, no counts, or not conserved
SELECT
    service,
    instance,
    component,
    ep_group,
    ep_rank,
    toUnixTimestamp64Milli(first_seen) AS first_ms,
    toUnixTimestamp64Milli(last_seen) AS last_ms,
    lag_seconds,
    windows,
    tokens,
    excluded_tokens,
    assignments,
    expected_assignments,
    missing_assignments,
    export_failures,
    ifNull(export_seconds, -1) AS export_seconds,
    most_waiting_bytes,
    state
FROM telemetry_health
WHERE {service:String} = '' OR service = {service:String}
ORDER BY service, ep_group, ep_rank, first_ms
