-- A holder is alive. If none was, or this one was cut off for a while, clients could not be heard: silence counts anew.
-- Whoever comes back while others went on is no home for 10 s; an outage that all had is held against nobody.
-- Returns the holders that are alive, this one included: name, URL, whether it may be a home.
-- Parameters: the holder, its URL.
WITH before AS (
    SELECT
        coalesce(bool_or(pgsemaphore_data.is_alive(h.last_heartbeat)), false) AS heard,
        coalesce(bool_or(h.holder = $1 AND NOT pgsemaphore_data.is_alive(h.last_heartbeat)), false) AS cut_off,
        coalesce(
            bool_or(pgsemaphore_data.is_alive(h.last_heartbeat))
            AND (SELECT s.since < clock_timestamp() - interval '3 seconds' FROM pgsemaphore_data.serving AS s),
            false
        ) AS others_went_on
    FROM pgsemaphore_data.holders AS h
),
beat AS (
    INSERT INTO pgsemaphore_data.holders AS h (holder, url, started_at, last_heartbeat)
    VALUES ($1, $2, clock_timestamp(), clock_timestamp())
    ON CONFLICT (holder) DO UPDATE SET
        last_heartbeat = excluded.last_heartbeat,
        url = excluded.url,
        returned_at = CASE
            WHEN pgsemaphore_data.is_alive(h.last_heartbeat) THEN h.returned_at
            WHEN (SELECT before.others_went_on FROM before) THEN excluded.last_heartbeat
        END
    RETURNING h.holder, h.url, h.returned_at
),
serving AS (
    INSERT INTO pgsemaphore_data.serving (since)
    SELECT clock_timestamp() FROM before WHERE NOT before.heard OR before.cut_off
    ON CONFLICT (one) DO UPDATE SET since = excluded.since
)
SELECT
    live.holder,
    live.url,
    live.returned_at IS NULL OR live.returned_at < clock_timestamp() - interval '10 seconds' AS steady
FROM (
    SELECT beat.holder, beat.url, beat.returned_at FROM beat
    UNION ALL
    SELECT h.holder, h.url, h.returned_at
    FROM pgsemaphore_data.holders AS h
    WHERE h.holder <> $1 AND pgsemaphore_data.is_alive(h.last_heartbeat)
) AS live
