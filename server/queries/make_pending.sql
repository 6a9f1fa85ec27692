-- Makes blank rows for batches, so that rounds update and never insert.
-- Parameters: key, first number, last number.
INSERT INTO pgsemaphore_data.pending (key, n)
SELECT $1, n FROM generate_series($2::integer, $3::integer) AS n
ON CONFLICT DO NOTHING
