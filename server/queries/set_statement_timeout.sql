-- How long each of the next statements of this transaction may take.
-- Parameters: ms, as text.
SELECT set_config('statement_timeout', $1, true)
