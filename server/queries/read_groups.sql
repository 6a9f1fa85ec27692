-- Usage and ceiling of groups; usage is NULL for a group without a row.
-- Parameters: key, groups, pattern of the policy that wins.
SELECT u.grp, g.grants, g.leases, g.live_leases, g.contended_until, l.permit_limit
FROM unnest($2::text[]) AS u(grp)
LEFT JOIN LATERAL (
    SELECT * FROM pgsemaphore_data.group_usage WHERE key = $1 AND grp = u.grp COLLATE "C" OFFSET 0
) AS g ON true
LEFT JOIN LATERAL (
    SELECT permit_limit FROM pgsemaphore_data.group_limits WHERE pattern = $3 AND grp = u.grp COLLATE "C" OFFSET 0
) AS l ON true
