-- Declares a client dead on a key.
-- $1 key, $2 client, $3 why, $4 who says so, $5 whether also one that was heard lately
SELECT s.generation, s.grants, s.leases
FROM pgsemaphore.settle_client($1, $2, $3, $4, $5) AS s
