-- Keys in use whose row does not know yet after what silence clients are settled.
-- A plain scan, outside rounds, only where policies changed.
SELECT s.key
FROM pgsemaphore_data.semaphores AS s
CROSS JOIN LATERAL pgsemaphore_data.policy_for(s.key) AS f
JOIN pgsemaphore_data.policies AS p ON p.pattern = f.pattern
WHERE (s.grants > 0 OR s.leases > 0) AND s.settle_after_ms IS DISTINCT FROM p.settle_lost_clients_after_ms
