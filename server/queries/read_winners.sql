-- read_winners
-- Which policy wins for each of some keys, and as of when: NULL where none does.
-- Parameters: keys.
SELECT u.key, hashtextextended(p.pattern, (extract(epoch FROM p.set_at) * 1000000)::bigint) AS stamp
FROM unnest($1::text[]) AS u(key)
CROSS JOIN LATERAL pgsemaphore_data.policy_for(u.key) AS f
LEFT JOIN pgsemaphore_data.policies AS p ON p.pattern = f.pattern
