-- Open blocks that clients have not heard of. Scans the key's slots: only for clients whose latest block they have not seen.
-- Parameters: key, client ids, the highest round each has seen.
SELECT s.slot, s.kind, s.round, s.client_id, s.grp, s.permits, s.used, s.released, s.status, s.deadline, s.batch, s.created_at,
    s.stopped, s.ttl_ms, s.reported_at
FROM pgsemaphore_data.slots AS s
JOIN unnest($2::text[], $3::bigint[]) AS u(client_id, seen) ON s.client_id = u.client_id COLLATE "C" AND s.round > u.seen
WHERE s.key = $1 AND s.kind IS NOT NULL
