-- One layer's expert load over time, without the interval that is still running.
-- Parameters: table (expert_load_1m, _10m or _1h), interval_seconds (of that table), service, ep_group, experts,
--             layer, start_ms and end_ms (Unix ms, end excluded).
-- phase    prefill or decode
-- time_ms  start of the interval, Unix ms
-- tokens   assignments by logical expert in the interval
WITH (
    -- Until when every rank that still reports has reported. Empty once the single windows have expired: then no
    -- interval of that time is running.
    SELECT arrayMin(arrayFilter(end -> end >= arrayMax(ends) - 60, groupArray(rank_end) AS ends))
    FROM (
        SELECT toUnixTimestamp(max(end_time)) AS rank_end
        FROM expert_load
        WHERE service = {service:String} AND ep_group = {ep_group:String} AND layer = {layer:UInt32}
        GROUP BY phase, ep_rank
    )
) AS reported_until
SELECT
    phase,
    toInt64(toUnixTimestamp(time)) * 1000 AS time_ms,
    sumForEachMerge(tokens) AS tokens
FROM {table:Identifier}
WHERE service = {service:String} AND ep_group = {ep_group:String} AND experts = {experts:UInt32}
    AND layer = {layer:UInt32}
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    AND (reported_until = 0 OR toUnixTimestamp(time) + {interval_seconds:UInt32} <= reported_until)
GROUP BY phase, time
ORDER BY phase, time
