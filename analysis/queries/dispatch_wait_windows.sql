-- How long did each rank wait for each other one, in windows side by side?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds (length
--             of a window, whole minutes).
-- time_ms       start of the window, Unix ms
-- stage         dispatch or combine
-- ep_rank       who waited
-- peer_rank     for whom
-- wait_seconds  how long, as the engine counts it: no time where it counts clock cycles over warps (wait_engines.sql)
SELECT
    toInt64(toUnixTimestamp(toStartOfInterval(time, toIntervalSecond({step_seconds:UInt32})))) * 1000 AS time_ms,
    stage,
    ep_rank,
    peer_rank,
    sum(dispatch_wait.wait_seconds) AS wait_seconds
FROM dispatch_wait
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY time_ms, stage, ep_rank, peer_rank
ORDER BY time_ms, stage, ep_rank, peer_rank
