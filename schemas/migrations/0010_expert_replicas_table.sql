-- Placement snapshots: copies of each expert on one rank. A state: never summed over time.
CREATE TABLE IF NOT EXISTS ${database}.expert_replicas ${on_cluster} (
    time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'middle of the window that carried the snapshot',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    ep_rank UInt16 COMMENT 'rank that holds the copies, 0-based',
    ep_size UInt16 COMMENT 'ranks of the group',
    layer UInt16 COMMENT 'layer index of the model, 0-based',
    experts UInt16 COMMENT 'logical experts of the layer: length of replicas',
    replicas Array(UInt64) CODEC(T64, ZSTD(1)) COMMENT 'copies on this rank by logical expert',
    slots Array(UInt16) MATERIALIZED arrayFlatten(
        arrayMap(
            (copies, position) -> arrayWithConstant(copies, toUInt16(position - 1)),
            replicas,
            arrayEnumerate(replicas)
        )
    ) CODEC(ZSTD(1)) COMMENT 'the same as a list: the logical expert of each copy on this rank'
)
ENGINE = ${replacing_merge_tree}
PARTITION BY if(toYear(time) BETWEEN 2024 AND 2099, toDate(time), toDate(0))
ORDER BY (service, ep_group, time, layer, ep_rank)
TTL toDateTime(time) + INTERVAL ${ten_minute_ttl_days} DAY
SETTINGS ttl_only_drop_parts = 1, ${durable}
