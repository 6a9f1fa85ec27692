-- Makes blank rows for clients, so that rounds update and never insert.
-- Parameters: key, client ids.
INSERT INTO pgsemaphore_data.clients (key, client_id)
SELECT $1, client_id FROM unnest($2::text[]) AS client_id
ON CONFLICT DO NOTHING
