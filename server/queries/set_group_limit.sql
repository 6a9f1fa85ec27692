-- Sets the ceiling of a group in a policy that exists; NULL removes it.
-- $1 pattern, $2 group, $3 the ceiling, $4 who does it
SELECT g.permit_limit
FROM pgsemaphore.set_group_limit($1, $2, $3, $4) AS g
