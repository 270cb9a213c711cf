-- Where are the copies? The newest placement that each rank told of each layer within a day before a time. A rank
-- spreads its layers over several windows, so each layer has a newest time of its own; found without the arrays.
-- Parameters: service, ep_group, experts, until_ms (Unix ms).
-- ep_rank   rank that holds the copies, 0-based
-- layer     layer index of the model, 0-based
-- ep_size   ranks of the group when the snapshot was taken
-- time_ms   time of the snapshot, Unix ms
-- replicas  copies on this rank by logical expert
WITH newest AS (
    SELECT ep_rank, layer, max(expert_replicas.time) AS time
    FROM expert_replicas
    WHERE service = {service:String} AND ep_group = {ep_group:String} AND experts = {experts:UInt32}
        AND expert_replicas.time <= fromUnixTimestamp64Milli({until_ms:Int64}, 'UTC')
        AND expert_replicas.time >= fromUnixTimestamp64Milli({until_ms:Int64}, 'UTC') - toIntervalDay(1)
    GROUP BY ep_rank, layer
)
SELECT
    ep_rank,
    layer,
    ep_size,
    toUnixTimestamp64Milli(snapshot.time) AS time_ms,
    CAST(snapshot.replicas AS Array(UInt16)) AS replicas
FROM expert_replicas AS snapshot
WHERE service = {service:String} AND ep_group = {ep_group:String} AND experts = {experts:UInt32}
    -- Ranks agree on their times, so this alone leaves nearly all of the table untouched.
    AND snapshot.time IN (SELECT newest.time FROM newest)
    AND (ep_rank, layer, snapshot.time) IN (SELECT ep_rank, layer, newest.time FROM newest)
ORDER BY ep_rank, layer
LIMIT 1 BY ep_rank, layer
