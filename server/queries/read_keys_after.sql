-- Keys in their order, bytewise.
-- $1 after this one, $2 how many at most
SELECT s.key
FROM pgsemaphore_data.semaphores AS s
WHERE s.key > $1 COLLATE "C"
ORDER BY s.key
LIMIT $2
