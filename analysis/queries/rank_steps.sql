-- How long are each rank's forward passes, and how many tokens has one?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- phase    prefill or decode
-- ep_rank  the rank
-- steps    forward passes, whole span
-- seconds  their time together
-- sized    passes that say how many tokens they have
-- tokens   token rows of those
SELECT
    phase,
    ep_rank,
    sumIf(observations, metric = 'moe.step.duration') AS steps,
    sumIf(total, metric = 'moe.step.duration') AS seconds,
    sumIf(observations, metric = 'moe.step.tokens') AS sized,
    sumIf(total, metric = 'moe.step.tokens') AS tokens
FROM distribution
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND distribution.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND distribution.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    AND metric IN ('moe.step.duration', 'moe.step.tokens')
GROUP BY phase, ep_rank
HAVING steps > 0
ORDER BY phase, ep_rank
