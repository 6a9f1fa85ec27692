-- A holder ends, and with it the rows of those that ended long ago without saying so.
-- Parameters: the holder.
DELETE FROM pgsemaphore_data.holders
WHERE holder = $1 OR last_heartbeat < clock_timestamp() - interval '1 hour'
