-- Columns of the tables and views of a database, as their comments describe them.
-- Parameters: database.
-- Columns: view, name, type, comment (meaning and unit), in the order of the view.
SELECT table AS view, name, type, comment
FROM system.columns
WHERE database = {database:String}
ORDER BY view, position
