-- Settings of this session, in their base units.
-- No parameters.
SELECT s.name, s.setting
FROM pg_settings AS s
WHERE s.name IN (
    'enable_seqscan', 'enable_hashjoin', 'enable_mergejoin', 'jit', 'plan_cache_mode', 'lock_timeout',
    'statement_timeout', 'idle_in_transaction_session_timeout'
)
ORDER BY s.name
