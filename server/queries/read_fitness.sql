-- Whether rounds can be run in this session. A default of the login or the database does not make the session read-only:
-- this turns it off, for the transactions that come after this one.
-- No parameters.
SELECT
    current_setting('synchronous_commit') <> 'off' AS durable,
    pg_is_in_recovery() AS standby,
    CASE
        WHEN s.source IN ('global', 'database', 'user', 'database user')
            THEN set_config(s.name, 'off', false)::boolean
        ELSE current_setting('transaction_read_only')::boolean
    END AS read_only
FROM pg_settings AS s
WHERE s.name = 'default_transaction_read_only'
