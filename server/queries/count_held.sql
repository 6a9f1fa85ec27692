-- Permits that count against any semaphore.
-- No parameters.
SELECT coalesce(sum(s.grants + s.leases), 0)::bigint FROM pgsemaphore_data.semaphores AS s
