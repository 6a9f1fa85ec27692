-- What people see. Columns of these views are stable; the tables behind them are not.

CREATE SCHEMA IF NOT EXISTS pgsemaphore;
COMMENT ON SCHEMA pgsemaphore IS 'Views and functions of pgsemaphore for people: a shared concurrency budget per key.';

-- A pattern never changes, so this index ends no HOT update.
CREATE INDEX policies_stem ON pgsemaphore_data.policies ((left(pattern, -1))) WHERE pattern LIKE '%*';
COMMENT ON INDEX pgsemaphore_data.policies_stem IS 'Prefixes in their bytewise order, for policy_for.';

CREATE FUNCTION pgsemaphore_data.policy_for(key text, OUT pattern text)
LANGUAGE plpgsql STABLE PARALLEL SAFE STRICT SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    bound text COLLATE "C" := key;
    stem text COLLATE "C";
    low integer;
    high integer;
    middle integer;
BEGIN
    IF key NOT LIKE '%*' THEN
        SELECT p.pattern INTO pattern FROM pgsemaphore_data.policies AS p WHERE p.pattern = bound;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    LOOP
        SELECT left(p.pattern, -1) INTO stem
        FROM pgsemaphore_data.policies AS p
        WHERE p.pattern LIKE '%*' AND left(p.pattern, -1) <= bound
        ORDER BY left(p.pattern, -1) DESC
        LIMIT 1;
        IF NOT FOUND THEN
            RETURN;
        ELSIF starts_with(bound, stem) THEN
            pattern := stem || '*';
            RETURN;
        END IF;
        -- A prefix of the key that is longer than what stem and key share would sort between them, and nothing does.
        low := 0;
        high := length(stem);
        WHILE low < high LOOP
            middle := (low + high + 1) / 2;
            IF starts_with(bound, left(stem, middle)) THEN
                low := middle;
            ELSE
                high := middle - 1;
            END IF;
        END LOOP;
        bound := left(bound, low);
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.policy_for IS 'Pattern of the policy that governs a key: the exact one (a pattern that ends in * is never exact), then the longest prefix. NULL if none matches.';

CREATE FUNCTION pgsemaphore_data.policy_extra(provisioning text, permit_limit integer, lease_extra integer, lease_extra_ratio numeric, OUT extra bigint)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN policy_extra.provisioning = 'over'
            THEN coalesce(policy_extra.lease_extra, floor(policy_extra.lease_extra_ratio * policy_extra.permit_limit), 0)::bigint
        ELSE 0
    END
$$;
COMMENT ON FUNCTION pgsemaphore_data.policy_extra IS 'Permits that leases may use beyond the limit, 0 unless provisioning is over.';

CREATE VIEW pgsemaphore.usage AS
SELECT
    s.key,
    p.pattern,
    l.permit_limit,
    e.extra,
    s.grants,
    s.leases,
    l.permit_limit - s.grants - CASE WHEN p.provisioning = 'over' THEN 0 ELSE s.leases END AS available,
    coalesce(s.contended_until > now(), false) AS contended,
    s.round,
    s.last_round_at
FROM pgsemaphore_data.semaphores AS s
LEFT JOIN LATERAL pgsemaphore_data.policy_for(s.key) AS f ON true
LEFT JOIN pgsemaphore_data.policies AS p ON p.pattern = f.pattern
CROSS JOIN LATERAL (
    SELECT CASE WHEN p.limit_function IS NULL THEN p.permit_limit ELSE s.permit_limit END AS permit_limit
) AS l
CROSS JOIN LATERAL pgsemaphore_data.policy_extra(p.provisioning, l.permit_limit, p.lease_extra, p.lease_extra_ratio) AS e;
COMMENT ON VIEW pgsemaphore.usage IS 'One row a semaphore that somebody asked for: its limit and what counts against it.';
COMMENT ON COLUMN pgsemaphore.usage.key IS 'The semaphore.';
COMMENT ON COLUMN pgsemaphore.usage.pattern IS 'Pattern of the policy that governs the key, NULL without one.';
COMMENT ON COLUMN pgsemaphore.usage.permit_limit IS 'The limit; of a limit_function the last one resolved. NULL before that and without policy.';
COMMENT ON COLUMN pgsemaphore.usage.extra IS 'Permits that leases may use beyond the limit (provisioning over).';
COMMENT ON COLUMN pgsemaphore.usage.grants IS 'Permits of open grants that are not released, unclaimed ones included.';
COMMENT ON COLUMN pgsemaphore.usage.leases IS 'Permits of open leases that still count.';
COMMENT ON COLUMN pgsemaphore.usage.available IS 'What is left of the limit; negative when usage is above it.';
COMMENT ON COLUMN pgsemaphore.usage.contended IS 'Some client''s demand lacks permits of the shared limit.';
COMMENT ON COLUMN pgsemaphore.usage.round IS 'Number of the latest round, 0 before the first.';
COMMENT ON COLUMN pgsemaphore.usage.last_round_at IS 'When that was; NULL before the first.';

CREATE VIEW pgsemaphore.blocked AS
SELECT
    c.key,
    c.client_id,
    b."group" AS grp,
    b.count,
    b.reason,
    timestamptz 'epoch' + b.since * interval '1 microsecond' AS since
FROM pgsemaphore_data.clients AS c
CROSS JOIN LATERAL jsonb_to_recordset(c.blocked) AS b("group" text, count bigint, reason text, since bigint)
WHERE c.blocked_at > now() - interval '75 seconds';
COMMENT ON VIEW pgsemaphore.blocked IS 'Demand that stays queued, one row a client and group, and why. A row that no round renews is gone after 75 s.';
COMMENT ON COLUMN pgsemaphore.blocked.key IS 'The semaphore.';
COMMENT ON COLUMN pgsemaphore.blocked.client_id IS 'Whose demand.';
COMMENT ON COLUMN pgsemaphore.blocked.grp IS 'In which group; the empty one is a group too.';
COMMENT ON COLUMN pgsemaphore.blocked.count IS 'Items that lack a permit.';
COMMENT ON COLUMN pgsemaphore.blocked.reason IS 'paused, not_permitted, limit_resolution_error, group_limit or limit.';
COMMENT ON COLUMN pgsemaphore.blocked.since IS 'Since when the client''s demand in this group lacks permits.';

CREATE VIEW pgsemaphore.group_usage AS
SELECT s.key, g.grp, l.permit_limit, g.grants, g.leases, g.contended
FROM pgsemaphore_data.semaphores AS s
LEFT JOIN LATERAL pgsemaphore_data.policy_for(s.key) AS f ON true
JOIN (
    SELECT u.key, u.grp, sum(u.grants)::bigint AS grants, sum(u.leases)::bigint AS leases, bool_or(u.contended) AS contended
    FROM (
        SELECT c.key, c.grp, c.grants, c.leases, false AS contended FROM pgsemaphore_data.group_usage AS c
        UNION ALL
        SELECT b.key, b.grp COLLATE "C", 0, 0, b.reason = 'group_limit' FROM pgsemaphore.blocked AS b
    ) AS u
    GROUP BY u.key, u.grp
) AS g ON g.key = s.key
LEFT JOIN pgsemaphore_data.group_limits AS l ON l.pattern = f.pattern AND l.grp = g.grp;
COMMENT ON VIEW pgsemaphore.group_usage IS 'What each group of a semaphore uses of it.';
COMMENT ON COLUMN pgsemaphore.group_usage.key IS 'The semaphore.';
COMMENT ON COLUMN pgsemaphore.group_usage.grp IS 'The group; the empty one is a group too.';
COMMENT ON COLUMN pgsemaphore.group_usage.grants IS 'Permits of its open grants that are not released, unclaimed ones included.';
COMMENT ON COLUMN pgsemaphore.group_usage.leases IS 'Permits of its open leases that still count.';
COMMENT ON COLUMN pgsemaphore.group_usage.permit_limit IS 'The group''s own ceiling in the policy, NULL without one.';
COMMENT ON COLUMN pgsemaphore.group_usage.contended IS 'Some client''s demand lacks permits of the group''s ceiling.';

CREATE VIEW pgsemaphore.client_usage AS
SELECT
    u.key,
    u.client_id,
    coalesce(max(u.generation), 0) AS generation,
    sum(u.grants)::bigint AS grants,
    sum(u.leases)::bigint AS leases,
    max(u.last_seen) AS last_seen,
    max(u.last_seen) < now() - interval '10 minutes' AND sum(u.grants + u.leases) > 0 AS unheard
FROM (
    SELECT c.key, c.client_id, c.generation, 0 AS grants, 0 AS leases, c.last_seen FROM pgsemaphore_data.clients AS c
    UNION ALL
    SELECT
        s.key,
        s.client_id,
        NULL,
        CASE WHEN s.kind = 'grant' THEN s.counted ELSE 0 END,
        CASE WHEN s.kind = 'lease' THEN s.counted ELSE 0 END,
        NULL
    FROM pgsemaphore_data.slots AS s
    WHERE s.kind IS NOT NULL
) AS u
GROUP BY u.key, u.client_id;
COMMENT ON VIEW pgsemaphore.client_usage IS 'What each client holds of each semaphore.';
COMMENT ON COLUMN pgsemaphore.client_usage.key IS 'The semaphore.';
COMMENT ON COLUMN pgsemaphore.client_usage.client_id IS 'The client.';
COMMENT ON COLUMN pgsemaphore.client_usage.grants IS 'Permits of its open grants that are not released, unclaimed ones included.';
COMMENT ON COLUMN pgsemaphore.client_usage.leases IS 'Permits of its open leases that still count.';
COMMENT ON COLUMN pgsemaphore.client_usage.generation IS 'Highest generation of the client heard on this key.';
COMMENT ON COLUMN pgsemaphore.client_usage.last_seen IS 'Its last message, up to 20 s late.';
COMMENT ON COLUMN pgsemaphore.client_usage.unheard IS 'It holds permits and was not heard for over 10 minutes.';

CREATE VIEW pgsemaphore.grants AS
SELECT
    s.key,
    s.round || '-' || s.slot AS id,
    s.client_id,
    s.grp,
    s.permits,
    s.used AS claimed,
    s.released,
    s.status,
    CASE WHEN s.status = 'active' AND s.used < s.permits THEN s.deadline END AS claim_deadline,
    s.created_at
FROM pgsemaphore_data.slots AS s
WHERE s.kind = 'grant';
COMMENT ON VIEW pgsemaphore.grants IS 'Open grants: blocks of permits that still count.';
COMMENT ON COLUMN pgsemaphore.grants.key IS 'The semaphore.';
COMMENT ON COLUMN pgsemaphore.grants.id IS 'Name of the block in messages.';
COMMENT ON COLUMN pgsemaphore.grants.client_id IS 'Who holds it.';
COMMENT ON COLUMN pgsemaphore.grants.grp IS 'For which group.';
COMMENT ON COLUMN pgsemaphore.grants.status IS 'active, or expired: what was not claimed came back.';
COMMENT ON COLUMN pgsemaphore.grants.created_at IS 'When the round gave it.';
COMMENT ON COLUMN pgsemaphore.grants.permits IS 'Permits of the block; of an expired one those that were claimed.';
COMMENT ON COLUMN pgsemaphore.grants.claimed IS 'Permits used for an item so far.';
COMMENT ON COLUMN pgsemaphore.grants.released IS 'Of the claimed ones, how many came back.';
COMMENT ON COLUMN pgsemaphore.grants.claim_deadline IS 'When unclaimed permits come back; NULL when none are left to claim.';

CREATE VIEW pgsemaphore.leases AS
SELECT
    s.key,
    s.round || '-' || s.slot AS id,
    s.client_id,
    s.grp,
    s.permits,
    s.used AS drawn,
    s.released,
    s.counted AS footprint,
    s.status,
    s.stopped,
    s.ttl_ms,
    s.reported_at AS last_report,
    s.created_at
FROM pgsemaphore_data.slots AS s
WHERE s.kind = 'lease';
COMMENT ON VIEW pgsemaphore.leases IS 'Open leases: blocks of permits that clients draw without a round trip.';
COMMENT ON COLUMN pgsemaphore.leases.key IS 'The semaphore.';
COMMENT ON COLUMN pgsemaphore.leases.id IS 'Name of the block in messages.';
COMMENT ON COLUMN pgsemaphore.leases.client_id IS 'Who holds it.';
COMMENT ON COLUMN pgsemaphore.leases.grp IS 'For which group.';
COMMENT ON COLUMN pgsemaphore.leases.permits IS 'Permits of the block.';
COMMENT ON COLUMN pgsemaphore.leases.last_report IS 'When its client last reported it, or its making.';
COMMENT ON COLUMN pgsemaphore.leases.created_at IS 'When the round lent it.';
COMMENT ON COLUMN pgsemaphore.leases.drawn IS 'Permits used for an item so far, as last reported.';
COMMENT ON COLUMN pgsemaphore.leases.released IS 'Of the drawn ones, how many came back.';
COMMENT ON COLUMN pgsemaphore.leases.footprint IS 'What counts against the budget: permits minus released, or drawn minus released once it is stopped.';
COMMENT ON COLUMN pgsemaphore.leases.status IS 'active, or retired: nothing more may be drawn from it.';
COMMENT ON COLUMN pgsemaphore.leases.stopped IS 'Its client said that it draws nothing more.';
COMMENT ON COLUMN pgsemaphore.leases.ttl_ms IS 'It is retired when nobody reports it for this long.';

-- A dump, a logical replica and CREATE DATABASE ... TEMPLATE differ from their original in the cluster's identifier or in
-- the database's oid. A copy of the files (base backup, snapshot, promoted standby) has both, but its server was started
-- at another time than the original's, which may still run.
CREATE FUNCTION pgsemaphore_data.this_database(OUT database text)
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('%s/%s/%s', c.system_identifier, d.oid, (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint)
    FROM pg_control_system() AS c, pg_database AS d
    WHERE d.datname = current_database()
$$;
COMMENT ON FUNCTION pgsemaphore_data.this_database IS 'The name of this database that no copy of it shares: cluster, oid, and start of the server.';

CREATE FUNCTION pgsemaphore_data.is_alive(last_heartbeat timestamptz, database text, this_database text, OUT alive boolean)
LANGUAGE sql VOLATILE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT last_heartbeat > clock_timestamp() - interval '3 seconds' AND database = this_database $$;
COMMENT ON FUNCTION pgsemaphore_data.is_alive IS 'Whether a holder with that last heartbeat, into that database, runs over this one: one a second is due, three may be missed.';

CREATE FUNCTION pgsemaphore_data.serving_since(OUT since timestamptz)
LANGUAGE sql VOLATILE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT greatest(s.since, pg_postmaster_start_time())
    FROM pgsemaphore_data.serving AS s
    WHERE EXISTS (SELECT FROM pgsemaphore_data.holders AS h WHERE pgsemaphore_data.is_alive(h.last_heartbeat, h.database, pgsemaphore_data.this_database()))
$$;
COMMENT ON FUNCTION pgsemaphore_data.serving_since IS 'Since when clients can be heard without a break; NULL if no holder runs.';

CREATE VIEW pgsemaphore.holders AS
SELECT
    h.holder, h.url, h.started_at, h.last_heartbeat,
    pgsemaphore_data.is_alive(h.last_heartbeat, h.database, pgsemaphore_data.this_database()) AS live,
    h.database
FROM pgsemaphore_data.holders AS h;
COMMENT ON VIEW pgsemaphore.holders IS 'Holders that run, or ended without saying so.';
COMMENT ON COLUMN pgsemaphore.holders.holder IS 'Its name, random for each start.';
COMMENT ON COLUMN pgsemaphore.holders.url IS 'Where other holders reach it.';
COMMENT ON COLUMN pgsemaphore.holders.started_at IS 'Since when it runs.';
COMMENT ON COLUMN pgsemaphore.holders.last_heartbeat IS 'When it last said that it runs; once a second is due.';
COMMENT ON COLUMN pgsemaphore.holders.live IS 'It runs over this database and missed fewer than three heartbeats.';
COMMENT ON COLUMN pgsemaphore.holders.database IS 'The database that it writes to: cluster, oid, and start of the server. Another one than live rows have: the row came here with a copy.';

CREATE VIEW pgsemaphore.audit AS
SELECT a.at, a.key, a.client_id, a.action, a.actor, a.generation, a.grants, a.leases, a.detail, a.login
FROM pgsemaphore_data.audit AS a;
COMMENT ON VIEW pgsemaphore.audit IS 'Permits that came back, or changed hands, by a declaration and not by their owner''s reports; and changes of policies.';
COMMENT ON COLUMN pgsemaphore.audit.at IS 'When that was.';
COMMENT ON COLUMN pgsemaphore.audit.client_id IS 'Whose permits; NULL for a change of a policy.';
COMMENT ON COLUMN pgsemaphore.audit.detail IS 'The reason that was given; of a change of a policy the whole policy, or deleted.';
COMMENT ON COLUMN pgsemaphore.audit.key IS 'The semaphore; of a change of a policy its pattern.';
COMMENT ON COLUMN pgsemaphore.audit.action IS 'settle (an operator), settle_silent (the policy), takeover (a successor), unknown_to_client (it says that it does not hold them), policy.';
COMMENT ON COLUMN pgsemaphore.audit.actor IS 'Who said so: as a holder''s login names somebody, else the login itself.';
COMMENT ON COLUMN pgsemaphore.audit.login IS 'The database login of the session that did it.';
COMMENT ON COLUMN pgsemaphore.audit.generation IS 'The lowest generation of the client admitted from then on.';
COMMENT ON COLUMN pgsemaphore.audit.grants IS 'Permits of grants that came back, or went on with a successor.';
COMMENT ON COLUMN pgsemaphore.audit.leases IS 'The same of leases.';

CREATE VIEW pgsemaphore.policies AS
SELECT
    p.pattern,
    p.permit_limit,
    p.limit_function,
    p.paused,
    p.paused_groups,
    p.group_limit_function,
    p.can_grant_function,
    p.round_wait_ms,
    p.round_period_ms,
    p.eager,
    p.grant_timeout_ms,
    p.provisioning,
    p.lease_reserve,
    p.lease_extra,
    p.lease_extra_ratio,
    p.permits_per_lease,
    p.lease_ttl_ms,
    p.limited_groups,
    p.settle_lost_clients_after_ms,
    p.set_by,
    p.set_at
FROM pgsemaphore_data.policies AS p;
COMMENT ON VIEW pgsemaphore.policies IS 'How the semaphores that a pattern matches behave; change it with pgsemaphore.configure or set_limit.';
COMMENT ON COLUMN pgsemaphore.policies.pattern IS 'An exact key, or a prefix that ends in *. The exact one wins, then the longest prefix.';
COMMENT ON COLUMN pgsemaphore.policies.permit_limit IS 'Permits in use at once; 0 stops admission. NULL where limit_function says it.';
COMMENT ON COLUMN pgsemaphore.policies.limit_function IS 'Name of a function (key text) returns integer, called once a round.';
COMMENT ON COLUMN pgsemaphore.policies.paused IS 'Nothing is admitted; releases go on.';
COMMENT ON COLUMN pgsemaphore.policies.paused_groups IS 'Groups in which nothing is admitted.';
COMMENT ON COLUMN pgsemaphore.policies.group_limit_function IS 'Name of a function (key text, grp text) returns integer; NULL is no ceiling.';
COMMENT ON COLUMN pgsemaphore.policies.can_grant_function IS 'Name of a function (key text, client_id text, grp text) returns boolean.';
COMMENT ON COLUMN pgsemaphore.policies.round_wait_ms IS 'How long a round waits for more requests after its first one: 0, unless fewer transactions matter more than delay.';
COMMENT ON COLUMN pgsemaphore.policies.round_period_ms IS 'Least time between rounds of one key: it bounds what a busy key costs; what arrives meanwhile is the next round.';
COMMENT ON COLUMN pgsemaphore.policies.eager IS 'Demand that fits is served at once while nobody else waits.';
COMMENT ON COLUMN pgsemaphore.policies.grant_timeout_ms IS 'Unclaimed permits come back after this.';
COMMENT ON COLUMN pgsemaphore.policies.provisioning IS 'none, strict, under or over: what leases may use.';
COMMENT ON COLUMN pgsemaphore.policies.lease_reserve IS 'Permits reserved for leases (under).';
COMMENT ON COLUMN pgsemaphore.policies.lease_extra IS 'Permits for leases beyond the limit (over).';
COMMENT ON COLUMN pgsemaphore.policies.lease_extra_ratio IS 'The same as a fraction of the limit, rounded down (over).';
COMMENT ON COLUMN pgsemaphore.policies.permits_per_lease IS 'Largest lease.';
COMMENT ON COLUMN pgsemaphore.policies.lease_ttl_ms IS 'A lease that nobody reports for this long is retired.';
COMMENT ON COLUMN pgsemaphore.policies.limited_groups IS 'excluded or within_group_limit: may groups with a ceiling hold leases.';
COMMENT ON COLUMN pgsemaphore.policies.settle_lost_clients_after_ms IS 'A client that is silent for this long is declared dead; NULL: never.';
COMMENT ON COLUMN pgsemaphore.policies.set_by IS 'Who changed the policy last: a database login, or what a holder''s login says: http, cli:USER. Behind apply: who ran pgsemaphore policy apply.';
COMMENT ON COLUMN pgsemaphore.policies.set_at IS 'When that was.';

CREATE VIEW pgsemaphore.group_limits AS
SELECT g.pattern, g.grp, g.permit_limit FROM pgsemaphore_data.group_limits AS g;
COMMENT ON VIEW pgsemaphore.group_limits IS 'Ceilings of groups under the shared limit; change them with pgsemaphore.set_group_limit.';
COMMENT ON COLUMN pgsemaphore.group_limits.pattern IS 'Pattern of the policy.';
COMMENT ON COLUMN pgsemaphore.group_limits.grp IS 'The group; the empty one is a group too.';
COMMENT ON COLUMN pgsemaphore.group_limits.permit_limit IS 'Permits in use at once in the group; 0 stops its admission.';

REVOKE ALL ON ALL TABLES IN SCHEMA pgsemaphore FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pgsemaphore FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pgsemaphore_data FROM PUBLIC;
