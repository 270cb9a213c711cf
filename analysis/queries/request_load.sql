-- How many requests are running and waiting? Mean over each step, over all processes.
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds.
-- time_ms  start of the step, Unix ms
-- running  requests being computed
-- waiting  requests queued
SELECT
    toInt64(toUnixTimestamp(toStartOfInterval(time, toIntervalSecond({step_seconds:UInt32})))) * 1000 AS time_ms,
    sum(request_load.running) / uniqExact(time) AS running,
    sum(request_load.waiting) / uniqExact(time) AS waiting
FROM request_load
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY time_ms
ORDER BY time_ms
