-- For which rank do the others wait in dispatch, and how long does it wait itself?
SELECT ep_rank, sum(waited) AS waited_seconds, sum(was_waited_for) AS others_waited_seconds
FROM (
    SELECT ep_rank, wait_seconds AS waited, 0 AS was_waited_for
    FROM dispatch_wait
    WHERE time > now() - INTERVAL 15 MINUTE AND stage = 'dispatch'
    UNION ALL
    SELECT peer_rank, 0, wait_seconds
    FROM dispatch_wait
    WHERE time > now() - INTERVAL 15 MINUTE AND stage = 'dispatch'
)
GROUP BY ep_rank
ORDER BY others_waited_seconds DESC
