-- Whether demand of anybody is blocked.
-- Parameters: key. Scans the key's clients.
SELECT EXISTS (
    SELECT FROM pgsemaphore_data.clients
    WHERE key = $1 AND blocked <> '[]' AND blocked_at > clock_timestamp() - interval '75 seconds'
)
