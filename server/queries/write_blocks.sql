-- Writes blocks into rows that exist already; a NULL kind frees the row.
-- Parameters: key, then an array per column.
INSERT INTO pgsemaphore_data.slots
    (key, slot, kind, round, client_id, grp, permits, used, released, status, deadline, batch, created_at,
     stopped, ttl_ms, reported_at)
SELECT $1, u.*
FROM unnest(
    $2::integer[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::integer[], $8::integer[], $9::integer[],
    $10::text[], $11::timestamptz[], $12::integer[], $13::timestamptz[], $14::boolean[], $15::bigint[], $16::timestamptz[]
) AS u
ON CONFLICT (key, slot) DO UPDATE SET
    kind = excluded.kind,
    round = excluded.round,
    client_id = excluded.client_id,
    grp = excluded.grp,
    permits = excluded.permits,
    used = excluded.used,
    released = excluded.released,
    status = excluded.status,
    deadline = excluded.deadline,
    batch = excluded.batch,
    created_at = excluded.created_at,
    stopped = excluded.stopped,
    ttl_ms = excluded.ttl_ms,
    reported_at = excluded.reported_at
