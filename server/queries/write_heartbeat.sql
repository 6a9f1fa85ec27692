-- A holder is alive. If none was, or this one was cut off for a while, clients could not be heard: silence counts anew.
-- Whoever comes back while others went on is no home for 10 s; an outage that all had is held against nobody.
-- Rows that came here with a copy of the table are of holders of another database: they are not alive here.
-- Returns the holders that are alive, this one included: name, URL, their database, whether it may be a home.
-- Parameters: the holder, its URL.
WITH known AS (
    SELECT
        h.holder, h.url, h.database, h.returned_at,
        pgsemaphore_data.is_alive(h.last_heartbeat, h.database, here.database) AS alive
    FROM pgsemaphore_data.holders AS h
    CROSS JOIN pgsemaphore_data.this_database() AS here
),
before AS (
    SELECT
        coalesce(bool_or(k.alive), false) AS heard,
        coalesce(bool_or(k.holder = $1 AND NOT k.alive), false) AS cut_off,
        coalesce(
            bool_or(k.alive)
            AND (SELECT s.since < clock_timestamp() - interval '3 seconds' FROM pgsemaphore_data.serving AS s),
            false
        ) AS others_went_on
    FROM known AS k
),
beat AS (
    INSERT INTO pgsemaphore_data.holders AS h (holder, url, database, started_at, last_heartbeat)
    VALUES ($1, $2, pgsemaphore_data.this_database(), clock_timestamp(), clock_timestamp())
    ON CONFLICT (holder) DO UPDATE SET
        last_heartbeat = excluded.last_heartbeat,
        url = excluded.url,
        database = excluded.database,
        returned_at = CASE
            WHEN pgsemaphore_data.is_alive(h.last_heartbeat, h.database, excluded.database) THEN h.returned_at
            WHEN (SELECT before.others_went_on FROM before) THEN excluded.last_heartbeat
        END
    RETURNING h.holder, h.url, h.database, h.returned_at
),
serving AS (
    INSERT INTO pgsemaphore_data.serving (since)
    SELECT clock_timestamp() FROM before WHERE NOT before.heard OR before.cut_off
    ON CONFLICT (one) DO UPDATE SET since = excluded.since
)
SELECT
    live.holder,
    live.url,
    live.database,
    live.returned_at IS NULL OR live.returned_at < clock_timestamp() - interval '10 seconds' AS steady
FROM (
    SELECT beat.holder, beat.url, beat.database, beat.returned_at FROM beat
    UNION ALL
    SELECT k.holder, k.url, k.database, k.returned_at FROM known AS k WHERE k.holder <> $1 AND k.alive
) AS live
