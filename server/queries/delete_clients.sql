-- Deletes the rows of a key that is forgotten.
-- Parameters: key.
DELETE FROM pgsemaphore_data.clients WHERE key = $1
