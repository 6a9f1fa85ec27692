-- Writes what a key knows of clients.
-- Parameters: key, client ids, last seen, round of the latest block, blocked demand, when it was blocked.
INSERT INTO pgsemaphore_data.clients (key, client_id, last_seen, last_block, blocked, blocked_at)
SELECT $1, u.*
FROM unnest($2::text[], $3::timestamptz[], $4::bigint[], $5::jsonb[], $6::timestamptz[]) AS u
ON CONFLICT (key, client_id) DO UPDATE SET
    last_seen = excluded.last_seen,
    last_block = excluded.last_block,
    blocked = excluded.blocked,
    blocked_at = excluded.blocked_at
