-- What does each GPU do? Utilization is the mean over the minute, memory the state at its end, of a limit the last one
-- known within an hour; bytes are those moved over the GPU's links in the minute.
CREATE VIEW IF NOT EXISTS ${database}.gpu ${on_cluster} (
    time DateTime64(0, 'UTC') COMMENT 'start of the minute',
    service LowCardinality(String) COMMENT 'deployment',
    ep_group LowCardinality(String) COMMENT 'expert-parallel group',
    ep_rank UInt16 COMMENT 'EP rank, 0-based',
    host LowCardinality(String) COMMENT 'machine',
    gpu LowCardinality(String) COMMENT 'hw.id',
    utilization Nullable(Float64) COMMENT 'fraction of time that it was busy, NULL where it was not reported',
    memory_used_bytes Nullable(UInt64) COMMENT 'last value of the minute',
    memory_limit_bytes Nullable(UInt64) COMMENT 'memory that exists',
    sent_bytes Nullable(UInt64) COMMENT 'bytes sent over its links, NULL where they are not counted',
    received_bytes Nullable(UInt64) COMMENT 'bytes received over its links'
) AS
SELECT
    used.time AS time,
    used.service AS service,
    used.ep_group AS ep_group,
    used.ep_rank AS ep_rank,
    used.host AS host,
    used.gpu AS gpu,
    used.busy AS utilization,
    used.bytes AS memory_used_bytes,
    if(known.bytes > 0 AND used.minute_end <= known.time + INTERVAL 61 MINUTE, toUInt64(known.bytes), NULL)
        AS memory_limit_bytes,
    used.sent AS sent_bytes,
    used.received AS received_bytes
FROM (
    SELECT
        CAST(toStartOfMinute(raw.time) AS DateTime64(0, 'UTC')) AS time,
        toStartOfMinute(raw.time) + INTERVAL 1 MINUTE AS minute_end,
        service, ep_group, ep_rank, host, gpu,
        avgOrNullIf(value, metric = 'hw.gpu.utilization') AS busy,
        argMaxOrNullIf(toUInt64(value), raw.time, metric = 'hw.gpu.memory.usage') AS bytes,
        sumOrNullIf(toUInt64(value), metric = 'hw.gpu.io' AND direction = 'transmit') AS sent,
        sumOrNullIf(toUInt64(value), metric = 'hw.gpu.io' AND direction = 'receive') AS received
    FROM ${database}.measurement AS raw
    WHERE metric IN ('hw.gpu.utilization', 'hw.gpu.memory.usage', 'hw.gpu.io')
    GROUP BY time, minute_end, service, ep_group, ep_rank, host, gpu
) AS used
ASOF LEFT JOIN (
    SELECT service, ep_group, ep_rank, host, gpu, measurement.time AS time, value AS bytes
    FROM ${database}.measurement
    WHERE metric = 'hw.gpu.memory.limit'
) AS known
ON used.service = known.service AND used.ep_group = known.ep_group AND used.ep_rank = known.ep_rank
    AND used.host = known.host AND used.gpu = known.gpu AND used.minute_end > known.time
