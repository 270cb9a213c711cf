CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.expert_load_1h_mv ${on_cluster} TO ${database}.expert_load_1h AS
SELECT
    toDateTime64(toStartOfHour(raw.time), 0, 'UTC') AS time,
    service,
    ep_group,
    phase,
    layer,
    experts,
    sumForEachState(raw.tokens) AS tokens
FROM ${database}.expert_load AS raw
GROUP BY time, service, ep_group, phase, layer, experts
