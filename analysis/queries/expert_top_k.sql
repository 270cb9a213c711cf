-- How many experts does a token of this deployment take, and which engines serve it?
-- Parameters: service, ep_group.
-- top_k    experts per token, of the newest window
-- engines  inference engines that reported within a day
SELECT
    argMax(top_k, end_time) AS top_k,
    (
        SELECT groupUniqArray(engine)
        FROM measurement
        WHERE service = {service:String} AND ep_group = {ep_group:String}
            AND measurement.time >= now64(3, 'UTC') - INTERVAL 1 DAY
    ) AS engines
FROM expert_load
WHERE service = {service:String} AND ep_group = {ep_group:String}
