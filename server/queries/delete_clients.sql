-- Deletes the rows of a key that is forgotten; fences stay for 30 days.
-- Parameters: key.
DELETE FROM pgsemaphore_data.clients
WHERE key = $1 AND (fenced_at IS NULL OR greatest(fenced_at, last_seen) < clock_timestamp() - interval '30 days')
