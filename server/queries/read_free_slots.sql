-- Free slots that the key's row does not list. Scans the key's slots: only when the list has run out.
-- Parameters: key, first slot never used, slots that are listed, how many.
SELECT slot
FROM pgsemaphore_data.slots
WHERE key = $1 AND slot < $2 AND kind IS NULL AND slot <> ALL ($3::integer[])
LIMIT $4
