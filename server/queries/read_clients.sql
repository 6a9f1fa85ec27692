-- Clients that speak in this transaction, or whose blocks it looks at.
-- Parameters: key, client ids.
SELECT c.client_id, c.last_seen, c.generation, c.process, c.resumes, c.lowest_generation, c.fenced_at, c.last_block,
    c.blocked, c.blocked_at, c.lease_slots, c.open_blocks
FROM unnest($2::text[]) AS u(client_id)
CROSS JOIN LATERAL (
    SELECT * FROM pgsemaphore_data.clients WHERE key = $1 AND client_id = u.client_id COLLATE "C" OFFSET 0
) AS c
