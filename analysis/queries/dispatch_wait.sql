-- How long did each rank wait for each other one over the whole span?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- stage         dispatch or combine
-- ep_rank       who waited
-- peer_rank     for whom
-- wait_seconds  how long, as the engine counts it: no time where it counts clock cycles over warps (wait_engines.sql)
SELECT
    stage,
    ep_rank,
    peer_rank,
    sum(dispatch_wait.wait_seconds) AS wait_seconds
FROM dispatch_wait
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY stage, ep_rank, peer_rank
ORDER BY stage, ep_rank, peer_rank
