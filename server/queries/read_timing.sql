-- When rounds of a key may start, by the policy that wins for it.
-- No row: no policy covers the key.
SELECT round_wait_ms, round_period_ms, eager
FROM pgsemaphore_data.policies
WHERE pattern = pgsemaphore_data.policy_for($1)
