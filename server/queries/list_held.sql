-- Who holds permits of a key, one row a client and group, most permits first.
-- $1 key, $2 how many at most
SELECT
    b.client_id, b.grp AS "group", sum(b.grants)::bigint AS grants, sum(b.leases)::bigint AS leases,
    bool_or(u.unheard) AS unheard,
    greatest(0, floor(extract(epoch FROM clock_timestamp() - max(u.last_seen)) * 1000)::bigint) AS last_seen_ms_ago
FROM (
    SELECT g.client_id, g.grp, g.permits - g.released AS grants, 0 AS leases
    FROM pgsemaphore.grants AS g WHERE g.key = $1 COLLATE "C"
    UNION ALL
    SELECT l.client_id, l.grp, 0, l.footprint FROM pgsemaphore.leases AS l WHERE l.key = $1 COLLATE "C"
) AS b
LEFT JOIN pgsemaphore.client_usage AS u ON u.key = $1 COLLATE "C" AND u.client_id = b.client_id
GROUP BY b.client_id, b.grp
HAVING sum(b.grants + b.leases) > 0
ORDER BY sum(b.grants + b.leases) DESC, b.client_id, b.grp
LIMIT $2
