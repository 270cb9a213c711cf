-- Who reports, with or without experts? Every process sends one state with every window. A clock that is ahead ends
-- now, and not before its own first window.
-- Parameters: hours (how far back to look).
-- service   deployment
-- ep_group  expert-parallel group
-- first_ms  middle of its first window, Unix ms
-- last_ms   end of its newest one, now at most, Unix ms
SELECT
    service,
    ep_group,
    toUnixTimestamp64Milli(min(measurement.time)) AS first_ms,
    toUnixTimestamp64Milli(greatest(least(max(end_time), now64(3, 'UTC')), min(end_time))) AS last_ms
FROM measurement
WHERE metric = 'moe.telemetry.queue.size'
    AND measurement.time >= now64(3, 'UTC') - toIntervalHour({hours:UInt32})
GROUP BY service, ep_group
ORDER BY service, ep_group
