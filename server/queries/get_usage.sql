-- Usage of one key in one snapshot, its lists capped at $2 + 1 so that a longer one shows; no row without policy and state.
-- $1 key, $2 longest list
SELECT
    a.key,
    coalesce(u.pattern, f.pattern) AS pattern,
    CASE WHEN u.key IS NULL THEN p.permit_limit ELSE u.permit_limit END AS "limit",
    coalesce(u.extra, e.extra) AS extra,
    coalesce(u.grants, 0) AS grants,
    coalesce(u.leases, 0) AS leases,
    CASE WHEN u.key IS NULL THEN p.permit_limit ELSE u.available END AS available,
    coalesce(u.contended, false) AS contended,
    coalesce(u.round, 0) AS round,
    (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'group', g.grp, 'limit', g.permit_limit, 'grants', g.grants, 'leases', g.leases, 'contended', g.contended
        ) ORDER BY g.grp), '[]')
        FROM (
            SELECT x.grp, x.permit_limit, x.grants, x.leases, x.contended
            FROM pgsemaphore.group_usage AS x WHERE x.key = $1 ORDER BY x.grp LIMIT $2 + 1
        ) AS g
    ) AS groups,
    (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'client_id', c.client_id, 'generation', c.generation, 'grants', c.grants, 'leases', c.leases,
            'last_seen_ms_ago', greatest(0, floor(extract(epoch FROM clock_timestamp() - c.last_seen) * 1000)::bigint)
        ) ORDER BY c.client_id), '[]')
        FROM (
            SELECT x.client_id, x.generation, x.grants, x.leases, x.last_seen
            FROM pgsemaphore.client_usage AS x WHERE x.key = $1 ORDER BY x.client_id LIMIT $2 + 1
        ) AS c
    ) AS clients,
    (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'client_id', b.client_id, 'group', b.grp, 'count', b.count, 'reason', b.reason,
            'since_ms_ago', greatest(0, floor(extract(epoch FROM clock_timestamp() - b.since) * 1000)::bigint)
        ) ORDER BY b.since, b.client_id, b.grp), '[]')
        FROM (
            SELECT x.client_id, x.grp, x.count, x.reason, x.since
            FROM pgsemaphore.blocked AS x WHERE x.key = $1 ORDER BY x.since, x.client_id, x.grp LIMIT $2 + 1
        ) AS b
    ) AS blocked
FROM (SELECT $1::text COLLATE "C" AS key) AS a
LEFT JOIN pgsemaphore.usage AS u ON u.key = $1
LEFT JOIN LATERAL pgsemaphore_data.policy_for(a.key) AS f ON true
LEFT JOIN pgsemaphore_data.policies AS p ON p.pattern = f.pattern
LEFT JOIN LATERAL pgsemaphore_data.policy_extra(p.provisioning, p.permit_limit, p.lease_extra, p.lease_extra_ratio) AS e ON true
WHERE u.key IS NOT NULL OR f.pattern IS NOT NULL
