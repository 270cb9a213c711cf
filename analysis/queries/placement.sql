-- Where are the copies? The newest placement of each rank and layer within some time before a moment. A rank sends
-- a few layers with each window, and those that changed at once. So the keys alone say when each was sent last, and
-- only then are arrays read, at those few times.
-- Parameters: service, ep_group, experts, from_ms and until_ms (Unix ms, both included).
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
        AND expert_replicas.time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
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
    -- In the order of the table's key: nearly all of the table stays untouched.
    AND (snapshot.time, layer, ep_rank) IN (SELECT newest.time, layer, ep_rank FROM newest)
