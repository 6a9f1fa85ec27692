-- Keys with nothing counted and no message for a while. A plain scan, outside rounds.
-- Parameters: for how long, in seconds; how many at most.
SELECT key
FROM pgsemaphore_data.semaphores
WHERE grants = 0 AND leases = 0 AND last_message_at < clock_timestamp() - make_interval(secs => $1)
LIMIT $2
