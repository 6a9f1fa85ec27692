-- Tells other holders, at the commit of this statement.
-- Parameters: payloads, as hints.rs spells them.
SELECT pg_notify('pgsemaphore', payload) FROM unnest($1::text[]) AS payload
