-- Whether rounds can be run in this session.
-- No parameters.
SELECT
    current_setting('synchronous_commit') <> 'off' AS durable,
    pg_is_in_recovery() AS standby,
    current_setting('transaction_read_only')::boolean AS read_only
