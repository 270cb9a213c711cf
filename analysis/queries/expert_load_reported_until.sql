-- Until when has every rank that still reports told its expert load?
-- Parameters: service, ep_group, phase, from_ms and until_ms (Unix ms: middles of the windows looked at).
-- reported_until_ms  end of the newest window of the slowest of them, Unix ms; 0 where nothing is stored
SELECT
    -- A rank that is more than a minute behind the others has stopped.
    toInt64(arrayMin(arrayFilter(end -> end >= arrayMax(ends) - 60000, groupArray(rank_end) AS ends))) AS reported_until_ms
FROM (
    SELECT max(toUnixTimestamp64Milli(end_time)) AS rank_end
    FROM expert_load
    WHERE service = {service:String} AND ep_group = {ep_group:String} AND phase = {phase:String}
        AND time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
        AND time <= fromUnixTimestamp64Milli({until_ms:Int64}, 'UTC')
    GROUP BY ep_rank
)
