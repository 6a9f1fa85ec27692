-- Clients that hold something and were last seen no later than a moment; when the next one was; and since when holders
-- could hear clients: NULL if none is alive now.
-- Parameters: key, the moment. Scans the key's clients.
SELECT
    coalesce(array_agg(c.client_id) FILTER (WHERE c.last_seen <= $2), '{}') AS clients,
    min(c.last_seen) FILTER (WHERE c.last_seen > $2) AS next_heard,
    pgsemaphore_data.serving_since() AS serving_since
FROM pgsemaphore_data.clients AS c
WHERE c.key = $1 AND c.open_blocks <> 0
