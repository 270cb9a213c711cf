-- How often was each expert chosen in each minute? Experts that nobody chose are there, with 0.
CREATE VIEW IF NOT EXISTS ${database}.expert_activations_per_minute ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    phase LowCardinality(String) COMMENT 'prefill or decode',
    layer UInt16 COMMENT 'layer index of the model, 0-based',
    expert UInt16 COMMENT 'logical expert, 0-based',
    activations UInt64 COMMENT '(token, expert) assignments in the minute'
) AS
SELECT time, service, ep_group, phase, layer, toUInt16(position - 1) AS expert, activations
FROM (
    SELECT time, service, ep_group, phase, layer, sumForEachMerge(tokens) AS tokens_by_expert
    FROM ${database}.expert_load_1m
    GROUP BY time, service, ep_group, phase, layer, experts
)
ARRAY JOIN tokens_by_expert AS activations, arrayEnumerate(tokens_by_expert) AS position
