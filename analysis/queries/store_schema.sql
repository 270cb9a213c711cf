-- Was the schema applied? Reading one row proves that the database and the tables of this room are there.
-- Parameters: none.
-- expert_load_tables  number of the tables and views that this room reads; a missing one is an error
SELECT count() AS expert_load_tables
FROM (
    SELECT 1 FROM expert_load WHERE 0
    UNION ALL SELECT 1 FROM expert_load_1m WHERE 0
    UNION ALL SELECT 1 FROM expert_load_10m WHERE 0
    UNION ALL SELECT 1 FROM expert_load_1h WHERE 0
    UNION ALL SELECT 1 FROM expert_replicas WHERE 0
    UNION ALL SELECT 1 FROM token_count WHERE 0
    UNION ALL SELECT 1 FROM telemetry_health WHERE 0
    UNION ALL SELECT 1 FROM measurement WHERE 0
    UNION ALL SELECT 1 FROM distribution WHERE 0
    UNION ALL SELECT 1 FROM indexed_count WHERE 0
)
