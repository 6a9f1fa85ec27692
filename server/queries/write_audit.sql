-- Keeps declarations for people.
-- Parameters: key, when, then an array per column.
INSERT INTO pgsemaphore_data.audit (key, at, client_id, action, actor, generation, grants, leases, detail)
SELECT $1, $2, u.*
FROM unnest($3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[]) AS u
