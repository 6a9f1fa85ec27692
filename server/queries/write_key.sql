-- Writes a key's row, if it is still the one that this transaction took.
-- One row is affected, else the transaction is rolled back and repeated.
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
