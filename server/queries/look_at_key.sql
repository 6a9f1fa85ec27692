-- look_at_key
-- Reads a key's row without holding it, with the policy that wins for the key and the clock: what take_key reads, of a
-- transaction that writes nothing.
-- Parameters: key.
WITH held AS (
    SELECT *, clock_timestamp() AS held_at FROM pgsemaphore_data.semaphores WHERE key = $1
)
SELECT
    coalesce(held.held_at, clock_timestamp()) AS now,
    current_setting('synchronous_commit') <> 'off' AS durable,
    held.version, held.round, held.last_round_at, held.permit_limit, held.grants, held.leases,
    held.live_leases, held.leases_due, held.leases_judged_by,
    held.contended_until, held.settle_after_ms, held.settle_after_since, held.silence_due, held.batch_ns, held.batch_deadlines, held.batch_open, held.batch_cap,
    held.free_slots, held.unlisted_slots, held.next_slot, held.slot_cap,
    policy.pattern, policy.permit_limit AS policy_limit, policy.limit_function, policy.group_limit_function, policy.can_grant_function,
    policy.paused, policy.paused_groups, policy.grant_timeout_ms,
    policy.round_wait_ms, policy.round_period_ms, policy.eager, policy.provisioning, policy.lease_reserve, policy.lease_extra,
    (policy.lease_extra_ratio * 1000000)::bigint AS lease_extra_millionths, policy.permits_per_lease,
    policy.lease_ttl_ms, policy.limited_groups, policy.settle_lost_clients_after_ms,
    hashtextextended(policy.pattern, (extract(epoch FROM policy.set_at) * 1000000)::bigint) AS stamp
FROM (VALUES (true)) AS one
LEFT JOIN held ON true
LEFT JOIN pgsemaphore_data.policies AS policy ON policy.pattern = pgsemaphore_data.policy_for($1)
