-- As expert_load_window, from the windows of the single ranks: for the first minutes, and for very short ones.
-- Parameters: interval_seconds (length of an interval), service, ep_group, phase, experts, start_ms and end_ms
--             (Unix ms, end excluded).
-- layer          layer index of the model, 0-based
-- tokens         assignments by logical expert, whole window
-- squares        Σ over intervals and experts of assignments²
-- total_squares  Σ over intervals of (assignments of the interval)²
-- intervals      intervals with tokens
-- last_ms        start of the last interval, Unix ms
SELECT
    layer,
    sumForEach(tokens_by_expert) AS tokens,
    sum(interval_squares) AS squares,
    sum(interval_total * interval_total) AS total_squares,
    toUInt32(countIf(interval_total > 0)) AS intervals,
    max(interval_ms) AS last_ms
FROM (
    SELECT
        toUnixTimestamp64Milli(toDateTime64(toStartOfInterval(time, toIntervalSecond({interval_seconds:UInt32})), 3, 'UTC'))
            AS interval_ms,
        layer,
        sumForEach(tokens) AS tokens_by_expert,
        arraySum(n -> toFloat64(n) * n, tokens_by_expert) AS interval_squares,
        toFloat64(arraySum(tokens_by_expert)) AS interval_total
    FROM expert_load
    WHERE service = {service:String} AND ep_group = {ep_group:String} AND phase = {phase:String}
        AND experts = {experts:UInt32}
        AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
    GROUP BY interval_ms, layer
)
GROUP BY layer
ORDER BY layer
