-- How long does each expert take, and per token? Measured where the engine runs experts one by one. Apportioned
-- where one grouped kernel computes all experts of a layer: its time, summed over the ranks of the group, is shared
-- out by the tokens that each expert of the layer got in the same minute, so the time per token is that of the layer.
CREATE VIEW IF NOT EXISTS ${database}.expert_latency ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    phase LowCardinality(String) COMMENT 'prefill or decode',
    layer UInt16 COMMENT 'layer index of the model, 0-based',
    expert UInt16 COMMENT 'logical expert, 0-based',
    source LowCardinality(String) COMMENT 'measured or apportioned',
    duration_ns Float64 COMMENT 'time spent computing the expert in the minute, over all ranks, nanoseconds',
    tokens UInt64 COMMENT '(token, expert) assignments in the minute',
    ns_per_token Nullable(Float64) COMMENT 'duration_ns / tokens, NULL without tokens'
) AS
SELECT
    time,
    service,
    ep_group,
    phase,
    layer,
    toUInt16(position - 1) AS expert,
    source,
    expert_ns AS duration_ns,
    expert_tokens AS tokens,
    if(expert_tokens = 0, NULL, expert_ns / expert_tokens) AS ns_per_token
FROM (
    SELECT
        spent.time AS time,
        spent.service AS service,
        spent.ep_group AS ep_group,
        spent.phase AS phase,
        spent.layer AS layer,
        spent.source AS source,
        arrayResize(load.tokens, greatest(length(load.tokens), length(spent.by_expert))) AS tokens_by_expert,
        toFloat64(arraySum(load.tokens)) AS layer_tokens,
        if(
            spent.is_grouped,
            arrayMap(n -> spent.layer_ns * n / layer_tokens, tokens_by_expert),
            arrayMap(ns -> toFloat64(ns), arrayResize(spent.by_expert, length(tokens_by_expert)))
        ) AS ns_by_expert
    FROM (
        SELECT
            CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time, service, ep_group, phase,
            toUInt16(raw.layer) AS layer, if(raw.source = '', 'measured', raw.source) AS source,
            false AS is_grouped, sumForEach(counts) AS by_expert, 0 AS layer_ns
        FROM ${database}.indexed_count AS raw
        WHERE metric = 'moe.expert.duration' AND raw.layer >= 0
        GROUP BY time, service, ep_group, phase, layer, source
        UNION ALL
        SELECT
            time, service, ep_group, phase, toUInt16(position - 1) AS layer, 'apportioned' AS source,
            true AS is_grouped, CAST([] AS Array(UInt64)) AS by_expert, toFloat64(ns) AS layer_ns
        FROM (
            SELECT
                CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time, service, ep_group, phase,
                sumForEach(counts) AS ns_by_layer
            FROM ${database}.indexed_count AS raw
            WHERE metric = 'moe.expert.group.duration'
            GROUP BY time, service, ep_group, phase
        )
        ARRAY JOIN ns_by_layer AS ns, arrayEnumerate(ns_by_layer) AS position
        WHERE ns > 0
    ) AS spent
    LEFT JOIN (
        SELECT time, service, ep_group, phase, layer, sumForEachMerge(minute.tokens) AS tokens
        FROM ${database}.expert_load_1m AS minute
        GROUP BY time, service, ep_group, phase, layer
    ) AS load
    ON spent.time = load.time AND spent.service = load.service AND spent.ep_group = load.ep_group
        AND spent.phase = load.phase AND spent.layer = load.layer
)
ARRAY JOIN ns_by_expert AS expert_ns, tokens_by_expert AS expert_tokens, arrayEnumerate(ns_by_expert) AS position
WHERE expert_ns > 0 OR expert_tokens > 0
