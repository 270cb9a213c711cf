-- How many finished requests, and how many of their output tokens, kept the latency contract?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds.
-- time_ms                       start of the step, Unix ms
-- requests, good_requests       that finished; that kept the contract
-- output_tokens, good_tokens    of finished requests; of those that kept the contract
-- ranks                         most EP ranks that reported in one minute, over the EP groups
SELECT
    time_ms,
    sum(requests_of_minute) AS requests,
    sum(good_requests_of_minute) AS good_requests,
    sum(output_tokens_of_minute) AS output_tokens,
    sum(good_tokens_of_minute) AS good_tokens,
    max(ranks_of_minute) AS ranks
FROM (
    SELECT
        toInt64(toUnixTimestamp(toStartOfInterval(time, toIntervalSecond({step_seconds:UInt32})))) * 1000 AS time_ms,
        time,
        sum(requests) AS requests_of_minute,
        sum(good_requests) AS good_requests_of_minute,
        sum(output_tokens) AS output_tokens_of_minute,
        sum(good_tokens) AS good_tokens_of_minute,
        sum(ranks) AS ranks_of_minute
    FROM goodput
    WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    GROUP BY time_ms, time
)
GROUP BY time_ms
ORDER BY time_ms
