-- Deletes the rows of a key that is forgotten.
-- Parameters: key.
DELETE FROM pgsemaphore_data.slots WHERE key = $1
