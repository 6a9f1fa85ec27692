-- Deletes the rows of a key that is forgotten.
-- Parameters: key.
DELETE FROM pgsemaphore_data.pending WHERE key = $1
