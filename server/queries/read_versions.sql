-- read_versions
-- The versions of some keys' rows.
-- Parameters: keys.
SELECT s.key, s.version
FROM unnest($1::text[]) AS u(key)
CROSS JOIN LATERAL (
    SELECT * FROM pgsemaphore_data.semaphores WHERE key = u.key COLLATE "C" OFFSET 0
) AS s
