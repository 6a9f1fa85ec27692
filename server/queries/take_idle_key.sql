-- Deletes the row of a key that is still idle.
-- Parameters: key; for how long, in seconds. No row affected: a message came.
DELETE FROM pgsemaphore_data.semaphores
WHERE key = $1 AND grants = 0 AND leases = 0 AND last_message_at < clock_timestamp() - make_interval(secs => $2)
