-- Replaces a policy: fields left out take their defaults, group limits are kept.
-- $1 pattern, $2 the new policy as JSON text, $3 who does it
SELECT c.policy
FROM pgsemaphore.configure($1, (pgsemaphore_data.policy_defaults() - 'group_limits') || $2::text::jsonb, $3) AS c
