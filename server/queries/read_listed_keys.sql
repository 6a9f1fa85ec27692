-- Usage of certain keys, those of them that have a row.
-- $1 which ones
SELECT u.key, u.permit_limit AS "limit", u.grants, u.leases, u.available, u.contended
FROM pgsemaphore.usage AS u
WHERE u.key = ANY ($1 COLLATE "C")
