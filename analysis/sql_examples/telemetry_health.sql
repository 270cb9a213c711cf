-- Which processes are silent, or count what does not add up?
SELECT service, component, ep_group, ep_rank, state, lag_seconds, missing_assignments, export_failures
FROM telemetry_health
ORDER BY state = 'ok', lag_seconds DESC
