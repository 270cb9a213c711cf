-- How many finished requests, and how many of their output tokens, kept the latency contract?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds.
-- time_ms                       start of the step, Unix ms
-- requests, good_requests       that finished; that kept the contract
-- output_tokens, good_tokens    of finished requests; of those that kept the contract
-- ranks                         size of each EP group, the largest of the step, over the EP groups
-- rank_seconds                  time that the ranks' windows cover, over all ranks
SELECT
    time_ms,
    sum(requests_of_group) AS requests,
    sum(good_requests_of_group) AS good_requests,
    sum(output_tokens_of_group) AS output_tokens,
    sum(good_tokens_of_group) AS good_tokens,
    sum(ranks_of_group) AS ranks,
    sum(rank_seconds_of_group) AS rank_seconds
FROM (
    SELECT
        toInt64(toUnixTimestamp(toStartOfInterval(time, toIntervalSecond({step_seconds:UInt32})))) * 1000 AS time_ms,
        goodput.ep_group,
        sum(requests) AS requests_of_group,
        sum(good_requests) AS good_requests_of_group,
        sum(output_tokens) AS output_tokens_of_group,
        sum(good_tokens) AS good_tokens_of_group,
        max(ranks) AS ranks_of_group,
        sum(ranks * covered_seconds) AS rank_seconds_of_group
    FROM goodput
    WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    GROUP BY time_ms, goodput.ep_group
)
GROUP BY time_ms
ORDER BY time_ms
