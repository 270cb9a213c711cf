-- How many KDA state slots and MLA KV cache blocks does each rank use now? The newest minute of each.
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- ep_rank           the rank
-- kda_slots         KDA state slots in use; null where there are none, as in the columns below
-- kda_slots_limit   that exist
-- mla_blocks        MLA KV cache blocks in use
-- mla_blocks_limit  that exist
SELECT
    ep_rank,
    argMax(slots, time) AS kda_slots,
    argMax(slots_limit, time) AS kda_slots_limit,
    argMax(blocks, time) AS mla_blocks,
    argMax(blocks_limit, time) AS mla_blocks_limit
FROM (
    SELECT
        time, ep_rank, kda_slots AS slots, kda_slots_limit AS slots_limit, mla_blocks AS blocks,
        mla_blocks_limit AS blocks_limit
    FROM cache_state
    WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
)
GROUP BY ep_rank
ORDER BY ep_rank
