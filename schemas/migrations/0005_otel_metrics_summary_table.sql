-- Landing table: the names and columns of the stock OpenTelemetry ClickHouse exporter.
CREATE TABLE IF NOT EXISTS ${database}.otel_metrics_summary ${on_cluster} (
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)) COMMENT 'OTLP resource attributes, values as text',
    ResourceSchemaUrl String CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeDroppedAttrCount UInt32 CODEC(ZSTD(1)),
    ScopeSchemaUrl String CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'service.name of the resource',
    MetricName LowCardinality(String) CODEC(ZSTD(1)),
    MetricDescription LowCardinality(String) CODEC(ZSTD(1)),
    MetricUnit LowCardinality(String) CODEC(ZSTD(1)),
    Attributes Map(LowCardinality(String), String) CODEC(ZSTD(1)) COMMENT 'OTLP point attributes, values as text',
    StartTimeUnix DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    TimeUnix DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    Count UInt64 CODEC(Delta, ZSTD(1)),
    Sum Float64 CODEC(ZSTD(1)),
    ValueAtQuantiles Nested (
        Quantile Float64,
        Value Float64
    ) CODEC(ZSTD(1)),
    Flags UInt32 CODEC(ZSTD(1)),
    INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_attr_key mapKeys(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_attr_value mapValues(Attributes) TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ${merge_tree}
PARTITION BY if(toYear(TimeUnix) BETWEEN 2024 AND 2099, toDate(TimeUnix), toDate(0))
ORDER BY (ServiceName, MetricName, toStartOfHour(TimeUnix), cityHash64(Attributes), TimeUnix)
TTL toDateTime(TimeUnix) + INTERVAL ${landing_ttl_hours} HOUR
SETTINGS ttl_only_drop_parts = 1, ${durable}
