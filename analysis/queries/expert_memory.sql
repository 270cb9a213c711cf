-- Where are the weights of one expert, and how large are they? The newest placement.
-- Parameters: service, ep_group (empty: all of them), layer, expert.
-- ep_rank   rank that holds copies
-- replicas  copies
-- bytes     of all its copies there; 0 where the size is not known
SELECT
    ep_rank,
    argMax(held, time) AS replicas,
    argMax(size, time) AS bytes
FROM (
    SELECT time, ep_rank, replicas AS held, bytes AS size
    FROM expert_memory
    WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND layer = {layer:UInt32} AND expert = {expert:UInt32}
)
GROUP BY ep_rank
ORDER BY ep_rank
