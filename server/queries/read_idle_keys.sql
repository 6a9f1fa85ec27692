-- Keys with nothing counted and no message for a while, whose round is not ahead of the clock. A plain scan, outside
-- rounds.
-- Parameters: for how long, in seconds; how many at most.
SELECT key
FROM pgsemaphore_data.semaphores
WHERE grants = 0
    AND leases = 0
    AND last_message_at < clock_timestamp() - make_interval(secs => $1)
    AND round <= extract(epoch FROM clock_timestamp()) * 1000000
LIMIT $2
