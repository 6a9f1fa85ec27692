-- Writes counters and marks of groups.
-- Parameters: key, then an array per column.
INSERT INTO pgsemaphore_data.group_usage (key, grp, grants, leases, live_leases, contended_until)
SELECT $1, u.*
FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::timestamptz[]) AS u
ON CONFLICT (key, grp) DO UPDATE SET
    grants = excluded.grants,
    leases = excluded.leases,
    live_leases = excluded.live_leases,
    contended_until = excluded.contended_until
