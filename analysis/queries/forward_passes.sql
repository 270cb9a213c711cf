-- How many forward passes did each rank of an EP group make in one phase?
-- Parameters: service, ep_group, phase, start_ms and end_ms (Unix ms, end excluded: middles of the windows).
-- ep_rank  rank that reports, 0-based
-- passes   forward passes with tokens of that phase
-- tokens   tokens that they computed
SELECT
    ep_rank,
    sum(observations) AS passes,
    toUInt64(sum(total)) AS tokens
FROM distribution
WHERE metric = 'moe.step.tokens' AND service = {service:String} AND ep_group = {ep_group:String}
    AND phase = {phase:String}
    AND distribution.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND distribution.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY ep_rank
ORDER BY ep_rank
