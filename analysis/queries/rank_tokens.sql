-- How many token rows did each rank schedule, those of the load? Ranks that share an engine with another count none.
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- phase    prefill or decode
-- ep_rank  the rank
-- tokens   token rows, whole span
SELECT phase, ep_rank, sum(token_count.tokens) AS tokens
FROM token_count
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND token_count.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND token_count.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    AND component = 'rank' AND excluded = 'none'
GROUP BY phase, ep_rank
HAVING tokens > 0
ORDER BY phase, ep_rank
