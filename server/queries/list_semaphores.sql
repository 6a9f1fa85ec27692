-- Usage of the keys that have a row, in the order of the keys, bytewise.
-- $1 prefix, $2 keys after this one, $3 how many at most
SELECT u.key, u.permit_limit AS "limit", u.grants, u.leases, u.available, u.contended
FROM pgsemaphore.usage AS u
WHERE u.key > $2 COLLATE "C" AND u.key >= $1 COLLATE "C" AND starts_with(u.key, $1)
ORDER BY u.key
LIMIT $3
