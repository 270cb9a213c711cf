-- Columns of the tables and views of a database, as their comments describe them.
-- Parameters: database.
-- view     table or view
-- name     column, in the order of the view
-- type     ClickHouse's type
-- comment  meaning and unit
SELECT table AS view, name, type, comment
FROM system.columns
WHERE database = {database:String}
ORDER BY view, position
