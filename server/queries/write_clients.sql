-- Writes what a key knows of clients.
-- Parameters: key, then an array per column; slots of leases as text, because arrays of arrays must be rectangular.
INSERT INTO pgsemaphore_data.clients
    (key, client_id, last_seen, last_block, blocked, blocked_at, lease_slots, open_blocks,
     generation, process, resumes, lowest_generation, fenced_at)
SELECT $1, u.client_id, u.last_seen, u.last_block, u.blocked, u.blocked_at, u.lease_slots::integer[], u.open_blocks,
    u.generation, u.process, u.resumes, u.lowest_generation, u.fenced_at
FROM unnest(
    $2::text[], $3::timestamptz[], $4::bigint[], $5::jsonb[], $6::timestamptz[], $7::text[], $8::bigint[],
    $9::bigint[], $10::text[], $11::boolean[], $12::bigint[], $13::timestamptz[]
) AS u(
    client_id, last_seen, last_block, blocked, blocked_at, lease_slots, open_blocks,
    generation, process, resumes, lowest_generation, fenced_at
)
ON CONFLICT (key, client_id) DO UPDATE SET
    last_seen = excluded.last_seen,
    last_block = excluded.last_block,
    blocked = excluded.blocked,
    blocked_at = excluded.blocked_at,
    lease_slots = excluded.lease_slots,
    open_blocks = excluded.open_blocks,
    generation = excluded.generation,
    process = excluded.process,
    resumes = excluded.resumes,
    lowest_generation = excluded.lowest_generation,
    fenced_at = excluded.fenced_at
