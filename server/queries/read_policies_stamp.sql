-- read_policies_stamp
-- Differs when any policy or group limit changed. A plain scan of the policies, outside rounds.
SELECT count(*) || ' ' || coalesce(sum(hashtextextended(pattern, (extract(epoch FROM set_at) * 1000000)::bigint)), 0)
FROM pgsemaphore_data.policies
