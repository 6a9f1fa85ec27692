-- Makes the counters of a key what its blocks say; gives those that differed.
-- $1 key, $2 who asks for it
SELECT r.key, r.grp, r.counter, r.stored, r.actual
FROM pgsemaphore.repair($1, $2) AS r
