-- What calls are about: their clients; blocks that they report or that these clients hold as leases; groups of the demand,
-- of these blocks, and of what was blocked before. `what` says which columns of a row count; usage is NULL for a group
-- without a row.
-- Parameters: key, client ids, slots, groups, pattern of the policy that wins.
WITH speaking AS (
    SELECT c.*
    FROM unnest($2::text[]) AS u(client_id)
    CROSS JOIN LATERAL (
        SELECT * FROM pgsemaphore_data.clients WHERE key = $1 AND client_id = u.client_id COLLATE "C" OFFSET 0
    ) AS c
), held AS (
    SELECT s.*
    FROM (SELECT unnest($3::integer[]) UNION SELECT unnest(lease_slots) FROM speaking) AS u(slot)
    CROSS JOIN LATERAL (
        SELECT * FROM pgsemaphore_data.slots WHERE key = $1 AND slot = u.slot OFFSET 0
    ) AS s
    WHERE s.kind IS NOT NULL
), named AS (
    SELECT unnest($4::text[]) AS grp
    UNION SELECT grp FROM held
    UNION SELECT b."group" FROM speaking CROSS JOIN LATERAL jsonb_to_recordset(blocked) AS b("group" text)
)
SELECT k.what, coalesce(c.client_id, s.client_id) AS client_id, coalesce(s.grp, g.grp) AS grp,
    c.last_seen, c.generation, c.process, c.resumes, c.lowest_generation, c.fenced_at, c.last_block, c.blocked,
    c.blocked_at, c.lease_slots, c.open_blocks,
    s.slot, s.kind, s.round, s.permits, s.used, s.released, s.status, s.deadline, s.batch, s.created_at, s.stopped,
    s.ttl_ms, s.reported_at,
    g.grants, g.leases, g.live_leases, g.contended_until, g.permit_limit
FROM (VALUES ('client'), ('block'), ('group')) AS k(what)
LEFT JOIN LATERAL (SELECT * FROM speaking WHERE k.what = 'client') AS c ON true
LEFT JOIN LATERAL (SELECT * FROM held WHERE k.what = 'block') AS s ON true
LEFT JOIN LATERAL (
    SELECT named.grp, u.grants, u.leases, u.live_leases, u.contended_until, l.permit_limit
    FROM named
    LEFT JOIN LATERAL (
        SELECT * FROM pgsemaphore_data.group_usage WHERE key = $1 AND grp = named.grp COLLATE "C" OFFSET 0
    ) AS u ON true
    LEFT JOIN LATERAL (
        SELECT permit_limit FROM pgsemaphore_data.group_limits WHERE pattern = $5 AND grp = named.grp COLLATE "C" OFFSET 0
    ) AS l ON true
    WHERE k.what = 'group'
) AS g ON true
WHERE coalesce(c.client_id, s.client_id, g.grp) IS NOT NULL
