-- When rounds of a key may start, by the policy that wins for it.
-- No row: no policy covers the key.
SELECT round_wait_ms, round_period_ms, eager,
    hashtextextended(pattern, (extract(epoch FROM set_at) * 1000000)::bigint) AS stamp
FROM pgsemaphore_data.policies
WHERE pattern = pgsemaphore_data.policy_for($1)
