-- Storage of semaphores. Every table's primary key starts with the semaphore's key (or the pattern), so that a table
-- can be distributed by it. Rows are reused and no index covers a column that changes: updates stay HOT, and
-- SERIALIZABLE transactions of different keys find nothing to conflict on. Tables may change between versions; the
-- views of schema pgsemaphore are the stable interface.

CREATE SCHEMA IF NOT EXISTS pgsemaphore_data;
COMMENT ON SCHEMA pgsemaphore_data IS 'Storage of pgsemaphore: written by holders only, may change between versions.';

CREATE TABLE pgsemaphore_data.policies (
    pattern text COLLATE "C" PRIMARY KEY,
    permit_limit integer,
    limit_function text,
    paused boolean NOT NULL DEFAULT false,
    paused_groups text[] NOT NULL DEFAULT '{}',
    group_limit_function text,
    can_grant_function text,
    round_wait_ms integer NOT NULL DEFAULT 0,
    round_period_ms integer NOT NULL DEFAULT 100,
    eager boolean NOT NULL DEFAULT false,
    grant_timeout_ms integer NOT NULL DEFAULT 10000,
    provisioning text NOT NULL DEFAULT 'none',
    lease_reserve integer,
    lease_extra integer,
    lease_extra_ratio numeric(10, 6),
    permits_per_lease integer NOT NULL DEFAULT 64,
    lease_ttl_ms bigint NOT NULL DEFAULT 1800000,
    limited_groups text NOT NULL DEFAULT 'excluded',
    settle_lost_clients_after_ms bigint,
    set_by text NOT NULL,
    set_at timestamptz NOT NULL,
    CONSTRAINT policies_has_one_source_of_limit CHECK ((permit_limit IS NULL) <> (limit_function IS NULL)),
    CONSTRAINT policies_permit_limit_ge_0 CHECK (permit_limit >= 0)
);
COMMENT ON TABLE pgsemaphore_data.policies IS 'How the semaphores that a pattern matches behave; the exact key wins, then the longest prefix.';

CREATE TABLE pgsemaphore_data.group_limits (
    pattern text COLLATE "C" NOT NULL REFERENCES pgsemaphore_data.policies ON DELETE CASCADE,
    grp text COLLATE "C" NOT NULL,
    permit_limit integer NOT NULL,
    PRIMARY KEY (pattern, grp),
    CONSTRAINT group_limits_permit_limit_ge_0 CHECK (permit_limit >= 0)
);
COMMENT ON TABLE pgsemaphore_data.group_limits IS 'Ceilings of groups under the shared limit; only those of the one policy that wins count.';

CREATE TABLE pgsemaphore_data.semaphores (
    key text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL DEFAULT 0,
    writer bigint NOT NULL DEFAULT 0,
    round bigint NOT NULL DEFAULT 0,
    last_round_at timestamptz,
    last_message_at timestamptz NOT NULL DEFAULT now(),
    permit_limit integer,
    grants bigint NOT NULL DEFAULT 0,
    leases bigint NOT NULL DEFAULT 0,
    live_leases bigint NOT NULL DEFAULT 0,
    leases_due timestamptz,
    leases_judged_by bigint NOT NULL DEFAULT 0,
    contended_until timestamptz,
    settle_after_ms bigint,
    settle_after_since timestamptz,
    silence_due timestamptz,
    next_deadline timestamptz,
    batch_ns integer[] NOT NULL DEFAULT '{}',
    batch_deadlines timestamptz[] NOT NULL DEFAULT '{}',
    batch_open integer[] NOT NULL DEFAULT '{}',
    batch_cap integer NOT NULL DEFAULT 0,
    free_slots integer[] NOT NULL DEFAULT '{}',
    unlisted_slots integer NOT NULL DEFAULT 0,
    next_slot integer NOT NULL DEFAULT 0,
    slot_cap integer NOT NULL DEFAULT 0,
    CONSTRAINT semaphores_round_fits_in_json CHECK (round BETWEEN 0 AND 9007199254740991),
    CONSTRAINT semaphores_grants_ge_0 CHECK (grants >= 0),
    CONSTRAINT semaphores_leases_ge_0 CHECK (leases >= 0),
    CONSTRAINT semaphores_free_slots_le_256 CHECK (cardinality(free_slots) <= 256),
    CONSTRAINT semaphores_next_slot_le_slot_cap CHECK (next_slot <= slot_cap)
) WITH (fillfactor = 20);
COMMENT ON TABLE pgsemaphore_data.semaphores IS 'One row a key: counters, the fence, and where free and expiring blocks are found.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.version IS 'Fence: rises in every writing transaction of the key.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.writer IS 'Random token of the attempt that wrote the row, to tell whose COMMIT went through.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.round IS 'Number of the latest round: at least the clock in microseconds, never used twice, and below 2^53, because replies carry it.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.permit_limit IS 'Limit as the last round resolved it.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.grants IS 'Permits minus released of all open grants.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.leases IS 'Footprint of all open leases.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.live_leases IS 'How many leases are active.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.leases_due IS 'No active lease is unreported for its ttl before this.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.leases_judged_by IS 'Stamp of the policy by which all leases were last judged.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.contended_until IS 'Until when a client''s demand counts as blocked by the limit.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.settle_after_ms IS 'Silent clients are settled after this, as the policy said when the row was last written.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.settle_after_since IS 'Since when it says so.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.silence_due IS 'No client is silent for that long before this.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.next_deadline IS 'Earliest claim deadline of a grant with unclaimed permits, or when a client may be silent for too long.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.batch_ns IS 'Live rows n of table pending, one a batch of grants with unclaimed permits.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.batch_deadlines IS 'Earliest claim deadline in each batch of batch_ns.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.batch_open IS 'Grants with unclaimed permits in each batch of batch_ns.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.batch_cap IS 'Rows of table pending that exist.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.free_slots IS 'Free rows of table slots below next_slot, at most 256 of them.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.unlisted_slots IS 'Free rows below next_slot that are not in free_slots.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.next_slot IS 'Rows of table slots from here to slot_cap were never used.';
COMMENT ON COLUMN pgsemaphore_data.semaphores.slot_cap IS 'Rows of table slots that exist.';

CREATE TABLE pgsemaphore_data.group_usage (
    key text COLLATE "C" NOT NULL,
    grp text COLLATE "C" NOT NULL,
    grants bigint NOT NULL DEFAULT 0,
    leases bigint NOT NULL DEFAULT 0,
    live_leases bigint NOT NULL DEFAULT 0,
    contended_until timestamptz,
    PRIMARY KEY (key, grp),
    CONSTRAINT group_usage_grants_ge_0 CHECK (grants >= 0),
    CONSTRAINT group_usage_leases_ge_0 CHECK (leases >= 0)
) WITH (fillfactor = 20);
COMMENT ON TABLE pgsemaphore_data.group_usage IS 'Counters per group, changed in the transaction that changes the blocks.';

CREATE TABLE pgsemaphore_data.slots (
    key text COLLATE "C" NOT NULL,
    slot integer NOT NULL,
    kind text,
    round bigint NOT NULL DEFAULT 0,
    client_id text COLLATE "C" NOT NULL DEFAULT '',
    grp text COLLATE "C" NOT NULL DEFAULT '',
    permits integer NOT NULL DEFAULT 0,
    used integer NOT NULL DEFAULT 0,
    released integer NOT NULL DEFAULT 0,
    status text NOT NULL DEFAULT 'active',
    deadline timestamptz,
    batch integer,
    created_at timestamptz,
    stopped boolean NOT NULL DEFAULT false,
    ttl_ms bigint NOT NULL DEFAULT 0,
    reported_at timestamptz,
    counted integer GENERATED ALWAYS AS (CASE WHEN stopped THEN used ELSE permits END - released) STORED,
    PRIMARY KEY (key, slot),
    CONSTRAINT slots_round_fits_in_json CHECK (round BETWEEN 0 AND 9007199254740991),
    CONSTRAINT slots_kind_is_known CHECK (kind IN ('grant', 'lease')),
    CONSTRAINT slots_status_is_known CHECK (status IN ('active', 'expired', 'retired')),
    CONSTRAINT slots_used_le_permits CHECK (used <= permits),
    CONSTRAINT slots_released_le_used CHECK (released <= used),
    CONSTRAINT slots_released_ge_0 CHECK (released >= 0)
) WITH (fillfactor = 20);
COMMENT ON TABLE pgsemaphore_data.slots IS 'Grants and leases, in rows that are used again; kind is NULL where the row is free.';
COMMENT ON COLUMN pgsemaphore_data.slots.round IS 'The round that made the block; round and slot together are its public id.';
COMMENT ON COLUMN pgsemaphore_data.slots.used IS 'Permits claimed (grant) or drawn (lease) so far.';
COMMENT ON COLUMN pgsemaphore_data.slots.deadline IS 'Claim deadline of a grant.';
COMMENT ON COLUMN pgsemaphore_data.slots.stopped IS 'The client draws nothing more from the lease: only what it drew counts.';
COMMENT ON COLUMN pgsemaphore_data.slots.ttl_ms IS 'A lease unreported for this long is retired, ms.';
COMMENT ON COLUMN pgsemaphore_data.slots.reported_at IS 'Last report of a lease, or its making.';
COMMENT ON COLUMN pgsemaphore_data.slots.counted IS 'What of the block counts against the budget: a lease counts whole until its client stopped it.';
COMMENT ON COLUMN pgsemaphore_data.slots.batch IS 'Row n of table pending while the grant has unclaimed permits.';

CREATE TABLE pgsemaphore_data.pending (
    key text COLLATE "C" NOT NULL,
    n integer NOT NULL,
    slots integer[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (key, n)
) WITH (fillfactor = 20);
COMMENT ON TABLE pgsemaphore_data.pending IS 'Which slots hold grants of one batch, read when the batch is due; a slot counts if its batch is still n.';

CREATE TABLE pgsemaphore_data.clients (
    key text COLLATE "C" NOT NULL,
    client_id text COLLATE "C" NOT NULL,
    last_seen timestamptz NOT NULL DEFAULT now(),
    generation bigint,
    process text COLLATE "C",
    resumes boolean NOT NULL DEFAULT false,
    lowest_generation bigint NOT NULL DEFAULT 0,
    fenced_at timestamptz,
    last_block bigint NOT NULL DEFAULT 0,
    blocked jsonb NOT NULL DEFAULT '[]',
    blocked_at timestamptz,
    lease_slots integer[] NOT NULL DEFAULT '{}',
    open_blocks bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (key, client_id)
) WITH (fillfactor = 20);
COMMENT ON TABLE pgsemaphore_data.clients IS 'Clients heard of on a key.';
-- A client's name never changes, so this index ends no HOT update. It has the key too: the planner may take it for the
-- client of one key, and the predicate lock then does not cover the same client's rows on all other keys.
CREATE INDEX clients_by_id ON pgsemaphore_data.clients (client_id, key);
COMMENT ON INDEX pgsemaphore_data.clients_by_id IS 'On which keys a client was heard, for takeovers of all of them.';
COMMENT ON COLUMN pgsemaphore_data.clients.last_seen IS 'Last committed message, or when a holder last had a call of the client open; written when it is older than 20 s, or than a tenth of what makes a silent client count as dead.';
COMMENT ON COLUMN pgsemaphore_data.clients.generation IS 'Highest generation heard; NULL before the first message.';
COMMENT ON COLUMN pgsemaphore_data.clients.process IS 'The process first heard under that generation: the only one admitted.';
COMMENT ON COLUMN pgsemaphore_data.clients.resumes IS 'That process took over what earlier generations held.';
COMMENT ON COLUMN pgsemaphore_data.clients.lowest_generation IS 'Lower generations were declared dead and are refused.';
COMMENT ON COLUMN pgsemaphore_data.clients.fenced_at IS 'When a process of the client was last declared dead; the row is kept for 30 days after that.';
COMMENT ON COLUMN pgsemaphore_data.clients.last_block IS 'Round that made the client''s latest block.';
COMMENT ON COLUMN pgsemaphore_data.clients.blocked IS 'Demand that stays queued, each {group, count, reason, since}, since in microseconds since 1970.';
COMMENT ON COLUMN pgsemaphore_data.clients.lease_slots IS 'Slots of the client''s open leases.';
COMMENT ON COLUMN pgsemaphore_data.clients.open_blocks IS 'Sum of the fingerprints of the client''s open blocks, each of id and status.';
COMMENT ON COLUMN pgsemaphore_data.clients.blocked_at IS 'Round that wrote blocked; entries count for 75 s.';

CREATE TABLE pgsemaphore_data.audit (
    key text COLLATE "C" NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL,
    client_id text COLLATE "C",
    action text NOT NULL,
    actor text NOT NULL,
    generation bigint,
    grants bigint NOT NULL DEFAULT 0,
    leases bigint NOT NULL DEFAULT 0,
    detail text,
    login text NOT NULL DEFAULT session_user,
    PRIMARY KEY (key, id),
    CONSTRAINT audit_action_is_known CHECK (action IN ('settle', 'settle_silent', 'takeover', 'unknown_to_client', 'policy'))
);
COMMENT ON TABLE pgsemaphore_data.audit IS 'Declarations: permits that came back without a report of their owner, and changes of policies (key is the pattern then).';

CREATE TABLE pgsemaphore_data.holders (
    holder text COLLATE "C" PRIMARY KEY,
    url text NOT NULL,
    database text NOT NULL,
    started_at timestamptz NOT NULL,
    last_heartbeat timestamptz NOT NULL,
    returned_at timestamptz
) WITH (fillfactor = 20);
COMMENT ON COLUMN pgsemaphore_data.holders.database IS 'The database into which its last heartbeat was written, as this_database() names it: in a copy of this table the rows of the original differ.';
COMMENT ON COLUMN pgsemaphore_data.holders.returned_at IS 'When it last spoke again after it had missed three heartbeats while others had not; it is no home for a while then.';
COMMENT ON TABLE pgsemaphore_data.holders IS 'Holders that run, one row each, written with every heartbeat.';

CREATE TABLE pgsemaphore_data.serving (
    one boolean PRIMARY KEY DEFAULT true,
    since timestamptz NOT NULL,
    CONSTRAINT serving_is_one_row CHECK (one)
);
COMMENT ON TABLE pgsemaphore_data.serving IS 'Since when clients could be heard without a break: rewritten by a holder that finds no live one, or that was cut off itself.';

REVOKE ALL ON ALL TABLES IN SCHEMA pgsemaphore_data FROM PUBLIC;
