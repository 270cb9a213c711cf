-- What did each pair of ranks exchange over the whole span?
-- Parameters: service, ep_group (empty: all of them), start_ms and end_ms (Unix ms, end excluded).
-- phase           prefill or decode
-- ep_rank         who reports
-- peer_rank       the other one
-- bytes_sent      by the reporting rank to the peer
-- bytes_received  by the reporting rank from the peer
-- tokens          sent, each once however many of its experts live on the peer
-- assignments     (token, expert) assignments sent
SELECT
    phase,
    ep_rank,
    peer_rank,
    sum(rank_traffic.bytes_sent) AS bytes_sent,
    sum(bytes_received) AS bytes_received,
    sum(tokens) AS tokens,
    sum(assignments) AS assignments
FROM rank_traffic
WHERE service = {service:String}
    AND ({ep_group:String} = '' OR ep_group = {ep_group:String})
    AND time >= fromUnixTimestamp64Milli({start_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({end_ms:Int64}, 'UTC')
GROUP BY phase, ep_rank, peer_rank
ORDER BY phase, ep_rank, peer_rank
