-- Deletes a policy and its group limits; says whether there was one.
-- $1 pattern, $2 who does it
SELECT d.deleted
FROM pgsemaphore.delete_policy($1, $2) AS d
