-- The policy of a pattern as HTTP shows it; no row without one.
-- $1 pattern
SELECT d.policy
FROM pgsemaphore_data.policy_document($1) AS d
WHERE d.policy IS NOT NULL
