-- Keys that have something to do without a message, and in how many microseconds (below 0: it is late).
-- Parameters: how far to look ahead, in seconds. A plain scan, outside rounds.
SELECT key, (extract(epoch FROM next_deadline - clock_timestamp()) * 1000000)::bigint AS due_in
FROM pgsemaphore_data.semaphores
WHERE next_deadline <= clock_timestamp() + make_interval(secs => $1)
