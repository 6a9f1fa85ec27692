-- Deletes all rows of a key that is still idle, but for fences, which stay for 30 days. A key whose round is ahead of the
-- clock stays: without its row, rounds would start again below it.
-- Parameters: key; for how long without a message, in seconds. Returns 0 if a message came, else 1.
WITH forgotten AS (
    DELETE FROM pgsemaphore_data.semaphores
    WHERE key = $1
        AND grants = 0
        AND leases = 0
        AND round <= extract(epoch FROM clock_timestamp()) * 1000000
        AND last_message_at < clock_timestamp() - make_interval(secs => $2)
    RETURNING key
), of_slots AS (
    DELETE FROM pgsemaphore_data.slots WHERE key = $1 AND EXISTS (SELECT FROM forgotten)
), of_pending AS (
    DELETE FROM pgsemaphore_data.pending WHERE key = $1 AND EXISTS (SELECT FROM forgotten)
), of_groups AS (
    DELETE FROM pgsemaphore_data.group_usage WHERE key = $1 AND EXISTS (SELECT FROM forgotten)
), of_clients AS (
    DELETE FROM pgsemaphore_data.clients
    WHERE key = $1
        AND EXISTS (SELECT FROM forgotten)
        AND (fenced_at IS NULL OR greatest(fenced_at, last_seen) < clock_timestamp() - interval '30 days')
)
SELECT count(*) FROM forgotten
