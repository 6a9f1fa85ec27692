-- Deletes a policy and its group limits; says whether there was one.
-- $1 pattern
SELECT d.deleted
FROM pgsemaphore.delete_policy($1) AS d
