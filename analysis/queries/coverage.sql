-- From when to when do the windows of each step reach? Every process sends one state with every window.
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds.
-- time_ms     start of the step, Unix ms
-- covered_ms  from the start of its first window to the end of its last one, ms
SELECT
    toInt64(toUnixTimestamp(toStartOfInterval(toStartOfMinute(measurement.time), toIntervalSecond({step_seconds:UInt32})))) * 1000
        AS time_ms,
    max(toUnixTimestamp64Milli(end_time)) - min(toUnixTimestamp64Milli(start_time)) AS covered_ms
FROM measurement
WHERE metric = 'moe.telemetry.queue.size' AND service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND measurement.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND measurement.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY time_ms
ORDER BY time_ms
