-- Deletes rows of clients that hold nothing and were not heard for a while; fences stay for 30 days. A round that reads
-- such a row meanwhile is repeated.
-- Parameters: for how long, in seconds; how many rows at most.
DELETE FROM pgsemaphore_data.clients
WHERE (key, client_id) IN (
    SELECT key, client_id
    FROM pgsemaphore_data.clients
    WHERE open_blocks = 0
        AND last_seen < clock_timestamp() - make_interval(secs => $1)
        AND coalesce(blocked_at < clock_timestamp() - interval '75 seconds', true)
        AND (fenced_at IS NULL OR greatest(fenced_at, last_seen) < clock_timestamp() - interval '30 days')
    LIMIT $2
)
