-- Whose expert load is there, and from when to when? Both ends of the retention: the minutes say when the last
-- window came, the hours how far back it goes.
-- Parameters: none.
-- service       deployment
-- ep_group      expert-parallel group
-- phase         prefill or decode
-- experts       logical experts of a layer; a deployment that changed its model has several
-- layers        layers with routed experts
-- first_ms      start of the first minute (or hour, beyond the minutes' retention), Unix ms
-- end_ms        end of the last minute (or hour), at most of the running minute, Unix ms
SELECT
    service,
    ep_group,
    phase,
    experts,
    toUInt32(max(layers)) AS layers,
    toInt64(min(first_s)) * 1000 AS first_ms,
    -- A rank whose clock is ahead does not move the end beyond the minute that is running.
    toInt64(greatest(least(max(end_s), toUnixTimestamp(toStartOfMinute(now())) + 60), min(first_s) + 60)) * 1000 AS end_ms
FROM (
    SELECT
        service, ep_group, phase, experts, uniqExact(layer) AS layers,
        toUnixTimestamp(min(time)) AS first_s, toUnixTimestamp(max(time)) + 60 AS end_s
    FROM expert_load_1m
    GROUP BY service, ep_group, phase, experts
    UNION ALL
    -- An hour counts only beyond what the minutes know: its start may lie long before its first window.
    SELECT
        hour.service, hour.ep_group, hour.phase, hour.experts, uniqExact(hour.layer),
        toUnixTimestamp(min(hour.time)), toUnixTimestamp(max(hour.time)) + 3600
    FROM expert_load_1h AS hour
    LEFT JOIN (
        SELECT service, ep_group, phase, experts, toStartOfHour(min(time)) AS first_hour, 1 AS known
        FROM expert_load_1m
        GROUP BY service, ep_group, phase, experts
    ) AS minute USING (service, ep_group, phase, experts)
    WHERE ifNull(minute.known, 0) = 0 OR hour.time < minute.first_hour
    GROUP BY hour.service, hour.ep_group, hour.phase, hour.experts
)
GROUP BY service, ep_group, phase, experts
ORDER BY service, ep_group, phase, end_ms
