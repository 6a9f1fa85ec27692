-- All open leases of a key. Scans the key's slots: only when one may have to be retired.
-- Parameters: key.
SELECT s.slot, s.kind, s.round, s.client_id, s.grp, s.permits, s.used, s.released, s.status, s.deadline, s.batch, s.created_at,
    s.stopped, s.ttl_ms, s.reported_at
FROM pgsemaphore_data.slots AS s
WHERE s.key = $1 AND s.kind = 'lease'
