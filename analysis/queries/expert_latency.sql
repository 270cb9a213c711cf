-- How long does one expert take, and what part of its layer's time is that?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded), step_seconds, layer, expert.
-- phase        prefill or decode
-- source       measured, or apportioned from the grouped kernel's time by tokens
-- time_ms      start of the step, Unix ms
-- duration_ns  time of the expert
-- tokens       its assignments
-- layer_ns     time of all experts of its layer
SELECT
    phase,
    source,
    toInt64(toUnixTimestamp(toStartOfInterval(time, toIntervalSecond({step_seconds:UInt32})))) * 1000 AS time_ms,
    sumIf(expert_latency.duration_ns, expert = {expert:UInt32}) AS duration_ns,
    sumIf(expert_latency.tokens, expert = {expert:UInt32}) AS tokens,
    sum(expert_latency.duration_ns) AS layer_ns
FROM expert_latency
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    AND layer = {layer:UInt32}
GROUP BY phase, source, time_ms
ORDER BY phase, source, time_ms
