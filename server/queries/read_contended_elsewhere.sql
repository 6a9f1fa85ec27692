-- The latest rounds that blocked clients outside this transaction: by the limit (grp NULL), and by ceilings of groups.
-- Parameters: key, ids of the clients of this transaction. Scans the key's clients.
SELECT CASE WHEN b.reason = 'group_limit' THEN b."group" END AS grp, max(c.blocked_at) AS at
FROM pgsemaphore_data.clients AS c
CROSS JOIN LATERAL jsonb_to_recordset(c.blocked) AS b("group" text, reason text)
WHERE c.key = $1
    -- A subquery is hashed; <> ALL would compare each with each.
    AND c.client_id NOT IN (SELECT u.id COLLATE "C" FROM unnest($2::text[]) AS u(id))
    AND b.reason IN ('limit', 'group_limit')
GROUP BY 1
