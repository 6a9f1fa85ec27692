-- Writes counters of groups.
-- Parameters: key, groups, grants, leases.
INSERT INTO pgsemaphore_data.group_usage (key, grp, grants, leases)
SELECT $1, u.*
FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS u
ON CONFLICT (key, grp) DO UPDATE SET grants = excluded.grants, leases = excluded.leases
