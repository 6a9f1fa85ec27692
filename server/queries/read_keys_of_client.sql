-- Keys on which a client holds something.
-- $1 client
SELECT key FROM pgsemaphore_data.clients WHERE client_id = $1 AND open_blocks <> 0 ORDER BY key
