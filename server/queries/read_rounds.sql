-- Who looks at a key's demand: how many holders run, and how long ago the last round was (NULL before the first).
-- $1 key
SELECT
    (SELECT count(*) FROM pgsemaphore.holders AS h WHERE h.live) AS live_holders,
    (
        SELECT greatest(0, floor(extract(epoch FROM clock_timestamp() - to_timestamp(u.round / 1e6)) * 1000)::bigint)
        FROM pgsemaphore.usage AS u WHERE u.key = $1 AND u.round > 0
    ) AS last_round_ms_ago
