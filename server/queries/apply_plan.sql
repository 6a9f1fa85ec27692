-- Writes a plan in one statement, and says how many rows of each kind it wrote. No row of the key: it is not the one that
-- this transaction took. No row is made where none was: those that are missing are made before.
-- Parameters: $1 key, $2 its version, $3 its writer, $4 to $25 columns of its row; then an array per column: $26 to $30 of
-- groups, $31 to $45 of blocks (a NULL kind frees the row), $46 to $48 numbers of batches and slots, pairwise, and numbers
-- of the batches to which slots are added; $49 to $60 of clients, slots of leases as text, because arrays of arrays must be
-- rectangular.
WITH of_key AS (
    UPDATE pgsemaphore_data.semaphores
    SET round = $4,
        last_round_at = $5,
        last_message_at = coalesce($6, last_message_at),
        permit_limit = $7,
        grants = $8,
        leases = $9,
        contended_until = $10,
        next_deadline = $11,
        batch_ns = $12,
        batch_deadlines = $13,
        batch_open = $14,
        batch_cap = $15,
        free_slots = $16,
        unlisted_slots = $17,
        next_slot = $18,
        slot_cap = $19,
        live_leases = $20,
        leases_due = $21,
        leases_judged_by = $22,
        settle_after_ms = $23,
        settle_after_since = $24,
        silence_due = $25
    WHERE key = $1 AND version = $2 AND writer = $3
    RETURNING 1
), of_groups AS (
    INSERT INTO pgsemaphore_data.group_usage (key, grp, grants, leases, live_leases, contended_until)
    SELECT $1, u.*
    FROM unnest($26::text[], $27::bigint[], $28::bigint[], $29::bigint[], $30::timestamptz[]) AS u
    ON CONFLICT (key, grp) DO UPDATE SET
        grants = excluded.grants,
        leases = excluded.leases,
        live_leases = excluded.live_leases,
        contended_until = excluded.contended_until
    RETURNING 1
), of_blocks AS (
    INSERT INTO pgsemaphore_data.slots
        (key, slot, kind, round, client_id, grp, permits, used, released, status, deadline, batch, created_at,
         stopped, ttl_ms, reported_at)
    SELECT $1, u.*
    FROM unnest(
        $31::integer[], $32::text[], $33::bigint[], $34::text[], $35::text[], $36::integer[], $37::integer[], $38::integer[],
        $39::text[], $40::timestamptz[], $41::integer[], $42::timestamptz[], $43::boolean[], $44::bigint[], $45::timestamptz[]
    ) AS u
    ON CONFLICT (key, slot) DO UPDATE SET
        kind = excluded.kind,
        round = excluded.round,
        client_id = excluded.client_id,
        grp = excluded.grp,
        permits = excluded.permits,
        used = excluded.used,
        released = excluded.released,
        status = excluded.status,
        deadline = excluded.deadline,
        batch = excluded.batch,
        created_at = excluded.created_at,
        stopped = excluded.stopped,
        ttl_ms = excluded.ttl_ms,
        reported_at = excluded.reported_at
    RETURNING 1
), of_batches AS (
    INSERT INTO pgsemaphore_data.pending AS p (key, n, slots)
    SELECT $1, u.n, array_agg(u.slot)
    FROM unnest($46::integer[], $47::integer[]) AS u(n, slot)
    GROUP BY u.n
    ON CONFLICT (key, n) DO UPDATE
    SET slots = CASE WHEN p.n = ANY ($48::integer[]) THEN p.slots || excluded.slots ELSE excluded.slots END
    RETURNING 1
), of_clients AS (
    INSERT INTO pgsemaphore_data.clients AS c
        (key, client_id, last_seen, last_block, blocked, blocked_at, lease_slots, open_blocks,
         generation, process, resumes, lowest_generation, fenced_at)
    SELECT $1, u.client_id, u.last_seen, u.last_block, u.blocked, u.blocked_at, u.lease_slots::integer[], u.open_blocks,
        u.generation, u.process, u.resumes, u.lowest_generation, u.fenced_at
    FROM unnest(
        $49::text[], $50::timestamptz[], $51::bigint[], $52::jsonb[], $53::timestamptz[], $54::text[], $55::bigint[],
        $56::bigint[], $57::text[], $58::boolean[], $59::bigint[], $60::timestamptz[]
    ) AS u(
        client_id, last_seen, last_block, blocked, blocked_at, lease_slots, open_blocks,
        generation, process, resumes, lowest_generation, fenced_at
    )
    ON CONFLICT (key, client_id) DO UPDATE SET
        last_seen = greatest(c.last_seen, excluded.last_seen),
        last_block = excluded.last_block,
        blocked = excluded.blocked,
        blocked_at = excluded.blocked_at,
        lease_slots = excluded.lease_slots,
        open_blocks = excluded.open_blocks,
        generation = excluded.generation,
        process = excluded.process,
        resumes = excluded.resumes,
        lowest_generation = excluded.lowest_generation,
        fenced_at = excluded.fenced_at
    RETURNING 1
)
SELECT (SELECT count(*) FROM of_key) AS keys,
    (SELECT count(*) FROM of_groups) AS groups,
    (SELECT count(*) FROM of_blocks) AS blocks,
    (SELECT count(*) FROM of_batches) AS batches,
    (SELECT count(*) FROM of_clients) AS clients
