-- Deletes the rows of a key that is forgotten.
-- Parameters: key.
DELETE FROM pgsemaphore_data.group_usage WHERE key = $1
