-- Counters that differ from the blocks.
-- $1, $2 of the keys from this one to that one
SELECT v.key, v.grp, v.counter, v.stored, v.actual
FROM pgsemaphore.verify($1, $2) AS v
