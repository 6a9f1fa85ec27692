-- Clients and what they hold, bytewise by key and client.
-- $1 the key (NULL: all keys), $2 whether only those that are unheard
SELECT
    c.key, c.client_id, c.generation, c.grants, c.leases, c.unheard,
    greatest(0, floor(extract(epoch FROM clock_timestamp() - c.last_seen) * 1000)::bigint) AS last_seen_ms_ago
FROM pgsemaphore.client_usage AS c
WHERE ($1::text IS NULL OR c.key = $1 COLLATE "C") AND (c.unheard OR NOT $2)
ORDER BY c.key, c.client_id
