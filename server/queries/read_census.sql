-- What metrics say of the database as a whole. A scan, outside rounds.
-- No parameters.
SELECT
    (
        SELECT coalesce(sum(s.counted), 0)::bigint
        FROM pgsemaphore_data.clients AS c
        JOIN pgsemaphore_data.slots AS s ON s.key = c.key AND s.client_id = c.client_id
        WHERE c.last_seen < now() - interval '10 minutes' AND s.kind IS NOT NULL
    ) AS unheard_permits,
    (SELECT count(*) FROM pgsemaphore.holders AS h WHERE h.live) AS live_holders
