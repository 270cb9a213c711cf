CREATE MATERIALIZED VIEW IF NOT EXISTS ${database}.expert_load_10m_mv ${on_cluster} TO ${database}.expert_load_10m AS
SELECT
    toDateTime64(toStartOfTenMinutes(raw.time), 0, 'UTC') AS time,
    service,
    ep_group,
    phase,
    layer,
    experts,
    sumForEachState(raw.tokens) AS tokens
FROM ${database}.expert_load AS raw
GROUP BY time, service, ep_group, phase, layer, experts
