-- Open blocks in the given slots.
-- Parameters: key, slots.
SELECT s.slot, s.kind, s.round, s.client_id, s.grp, s.permits, s.used, s.released, s.status, s.deadline, s.batch, s.created_at,
    s.stopped, s.ttl_ms, s.reported_at
FROM unnest($2::integer[]) AS u(slot)
CROSS JOIN LATERAL (
    SELECT * FROM pgsemaphore_data.slots WHERE key = $1 AND slot = u.slot OFFSET 0
) AS s
WHERE s.kind IS NOT NULL
