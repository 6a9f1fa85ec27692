-- Makes a policy what a file says, unless somebody else changed it last and force is not used.
-- $1 pattern, $2 the policy as JSON text, $3 force, $4 who does it
SELECT a.outcome, a.set_by, a.set_at
FROM pgsemaphore_data.apply_policy($1, $2::text::jsonb, $3, $4) AS a
