-- How full were the caches over time, and how much KDA state was copied?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds.
-- time_ms                start of the step, Unix ms
-- kda_ratio              KDA state slots, used / limit of the fullest rank; null without
-- mla_ratio              MLA KV cache blocks, used / limit of the fullest rank; null without
-- kda_copies_on_write    KDA state slots copied because two requests shared one
-- kda_copies_checkpoint  KDA state slots copied to come back to
SELECT
    toInt64(toUnixTimestamp(toStartOfInterval(time, toIntervalSecond({step_seconds:UInt32})))) * 1000 AS time_ms,
    max(if(kda_slots_limit > 0, kda_slots / kda_slots_limit, NULL)) AS kda_ratio,
    max(if(mla_blocks_limit > 0, mla_blocks / mla_blocks_limit, NULL)) AS mla_ratio,
    sum(cache_state.kda_copies_on_write) AS kda_copies_on_write,
    sum(cache_state.kda_copies_checkpoint) AS kda_copies_checkpoint
FROM cache_state
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY time_ms
ORDER BY time_ms
