-- Who wrote a key's row last: tells whether a COMMIT with an unknown outcome went through.
-- Parameters: key.
SELECT version, writer FROM pgsemaphore_data.semaphores WHERE key = $1
