-- As expert_load_windows, from the windows of the single ranks: for windows that no roll-up divides. A rank's
-- window belongs to the one that holds its middle.
-- Parameters: service, ep_group, phase, experts, start_ms and end_ms (Unix ms, end excluded), window_ms.
-- position  0-based number of the window, counted from start_ms
-- layer     layer index of the model, 0-based
-- tokens    assignments by logical expert
SELECT
    toInt64(intDiv(toUnixTimestamp64Milli(time) - {start_ms:Int64}, {window_ms:Int64})) AS position,
    layer,
    sumForEach(tokens) AS tokens
FROM expert_load
WHERE service = {service:String} AND ep_group = {ep_group:String} AND phase = {phase:String}
    AND experts = {experts:UInt32}
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY position, layer
ORDER BY position, layer
