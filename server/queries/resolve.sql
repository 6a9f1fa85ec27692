-- Asks the functions of a policy.
-- Parameters: key; limit function; group limit function and the groups to ask about; permission function and the clients
-- and groups to ask about, pairwise.
SELECT r.asked, r.client_id, r.grp, r.permits, r.permitted, r.failure
FROM pgsemaphore_data.resolve($1, $2, $3, $4, $5, $6, $7) AS r
