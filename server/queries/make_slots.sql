-- Makes blank rows for blocks, so that rounds update and never insert.
-- Parameters: key, first slot, last slot.
INSERT INTO pgsemaphore_data.slots (key, slot)
SELECT $1, slot FROM generate_series($2::integer, $3::integer) AS slot
ON CONFLICT DO NOTHING
