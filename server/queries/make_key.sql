-- Makes a key's row where there is none.
-- Parameters: key.
INSERT INTO pgsemaphore_data.semaphores (key) VALUES ($1) ON CONFLICT DO NOTHING
