-- Which slots are listed in batches that are due.
-- Parameters: key, numbers of batches.
SELECT p.n, p.slots
FROM unnest($2::integer[]) AS u(n)
CROSS JOIN LATERAL (
    SELECT n, slots FROM pgsemaphore_data.pending WHERE key = $1 AND n = u.n OFFSET 0
) AS p
