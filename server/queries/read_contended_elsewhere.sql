-- The latest round that blocked a client outside this transaction by the limit. Scans the key's clients.
-- Parameters: key, ids of the clients of this transaction.
SELECT max(blocked_at)
FROM pgsemaphore_data.clients
WHERE key = $1 AND blocked @> '[{"reason": "limit"}]' AND client_id <> ALL ($2::text[])
