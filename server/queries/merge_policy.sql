-- Changes the fields given of a policy, which is created if need be; null stands for the default.
-- $1 pattern, $2 the changes as JSON text, $3 who does it
SELECT c.policy
FROM pgsemaphore.configure($1, $2::text::jsonb, $3) AS c
