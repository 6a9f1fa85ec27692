-- Lists the slots of batches, in the place of those listed or after them.
-- Parameters: key; numbers of batches and slots, pairwise; numbers of the batches to which slots are added.
INSERT INTO pgsemaphore_data.pending AS p (key, n, slots)
SELECT $1, u.n, array_agg(u.slot)
FROM unnest($2::integer[], $3::integer[]) AS u(n, slot)
GROUP BY u.n
ON CONFLICT (key, n) DO UPDATE
SET slots = CASE WHEN p.n = ANY ($4::integer[]) THEN p.slots || excluded.slots ELSE excluded.slots END
