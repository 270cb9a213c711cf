-- Token rows that the engines scheduled, per minute, and the time that they cover: a running minute is not a
-- whole one.
-- Parameters: service, start_ms and end_ms (Unix ms, end excluded).
-- ep_group    expert-parallel group
-- phase       prefill or decode
-- minute_ms   start of the minute, Unix ms
-- covered_ms  from the start of its first window to the end of its last one, ms
-- tokens      token rows that are part of the load
SELECT
    ep_group,
    phase,
    toInt64(toUnixTimestamp(toStartOfMinute(counted.time))) * 1000 AS minute_ms,
    max(toUnixTimestamp64Milli(end_time))
        - min(2 * toUnixTimestamp64Milli(counted.time) - toUnixTimestamp64Milli(end_time)) AS covered_ms,
    sum(counted.tokens) AS tokens
FROM token_count AS counted
WHERE service = {service:String} AND excluded = 'none' AND phase != ''
    -- What a scraper says of a rank counts only in minutes in which the rank does not report itself.
    AND (
        component = 'rank' OR (ep_group, ep_rank, toStartOfMinute(counted.time)) NOT IN (
            SELECT ep_group, ep_rank, toStartOfMinute(own.time)
            FROM token_count AS own
            WHERE service = {service:String} AND component = 'rank'
                AND own.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
                AND own.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
        )
    )
    AND counted.time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND counted.time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY ep_group, phase, minute_ms
ORDER BY ep_group, phase, minute_ms
