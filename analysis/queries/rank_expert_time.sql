-- How long do each rank's experts compute, layer by layer?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- phase        prefill or decode
-- ep_rank      the rank
-- nanoseconds  by layer of the model, 0-based, whole span
SELECT phase, ep_rank, sumForEach(counts) AS nanoseconds
FROM indexed_count
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND indexed_count.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND indexed_count.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    AND metric = 'moe.expert.group.duration'
GROUP BY phase, ep_rank
ORDER BY phase, ep_rank
