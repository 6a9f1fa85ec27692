-- hear_open_calls
-- Notes that clients with an open call are heard now, and says how late that may be noted for each key, in milliseconds.
-- A client is noted if it holds something, the call is of the process that speaks for it or of a later one, and what is
-- noted is older than that. It waits for no lock: who holds the client's row decides for itself.
-- Parameters: keys, client ids, generations and processes of the calls, pairwise.
WITH open AS MATERIALIZED (
    SELECT u.key, u.client_id, u.generation, u.process, least(20000, coalesce(s.settle_after_ms / 10, 20000)) AS millis
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) AS u(key, client_id, generation, process)
    CROSS JOIN LATERAL (
        SELECT settle_after_ms FROM pgsemaphore_data.semaphores WHERE key = u.key COLLATE "C" OFFSET 0
    ) AS s
), silent AS MATERIALIZED (
    SELECT c.key, c.client_id
    FROM open
    CROSS JOIN LATERAL (
        SELECT x.key, x.client_id
        FROM pgsemaphore_data.clients AS x
        WHERE x.key = open.key COLLATE "C" AND x.client_id = open.client_id COLLATE "C"
            AND x.open_blocks <> 0
            AND open.generation >= x.lowest_generation
            AND (
                open.generation > x.generation
                OR open.generation = x.generation AND open.process IS NOT DISTINCT FROM x.process
            )
            AND x.last_seen < clock_timestamp() - make_interval(secs => open.millis / 1000.0)
        FOR UPDATE SKIP LOCKED
    ) AS c
), heard AS (
    UPDATE pgsemaphore_data.clients AS c
    SET last_seen = greatest(c.last_seen, clock_timestamp())
    FROM silent
    WHERE c.key = silent.key AND c.client_id = silent.client_id
)
SELECT DISTINCT key, millis::bigint FROM open
