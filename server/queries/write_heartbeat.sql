-- A holder is alive. If none was, or this one was cut off for a while, clients could not be heard: silence counts anew.
-- Parameters: the holder, its URL.
WITH before AS (
    SELECT
        coalesce(bool_or(pgsemaphore_data.is_alive(last_heartbeat)), false) AS heard,
        coalesce(bool_or(holder = $1 AND NOT pgsemaphore_data.is_alive(last_heartbeat)), false) AS cut_off
    FROM pgsemaphore_data.holders
),
beat AS (
    INSERT INTO pgsemaphore_data.holders (holder, url, started_at, last_heartbeat)
    VALUES ($1, $2, clock_timestamp(), clock_timestamp())
    ON CONFLICT (holder) DO UPDATE SET last_heartbeat = excluded.last_heartbeat, url = excluded.url
)
INSERT INTO pgsemaphore_data.serving (since)
SELECT clock_timestamp() FROM before WHERE NOT before.heard OR before.cut_off
ON CONFLICT (one) DO UPDATE SET since = excluded.since
