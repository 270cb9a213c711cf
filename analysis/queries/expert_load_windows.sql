-- Expert load in equally long windows, side by side, from a roll-up. Windows without tokens have no rows.
-- Parameters: table (expert_load_1m, _10m or _1h), service, ep_group, phase, experts, start_ms and end_ms
--             (Unix ms, end excluded, whole intervals of that table), window_ms (length of a window, whole
--             intervals too).
-- position  0-based number of the window, counted from start_ms
-- layer     layer index of the model, 0-based
-- tokens    assignments by logical expert
SELECT
    toInt64(intDiv(toInt64(toUnixTimestamp(time)) * 1000 - {start_ms:Int64}, {window_ms:Int64})) AS position,
    layer,
    sumForEachMerge(tokens) AS tokens
FROM {table:Identifier}
WHERE service = {service:String} AND ep_group = {ep_group:String} AND phase = {phase:String}
    AND experts = {experts:UInt32}
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY position, layer
ORDER BY position, layer
