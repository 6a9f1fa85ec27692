-- Counters that are counted again: a page of keys at a time, and put right when somebody asks for it.

CREATE FUNCTION pgsemaphore.verify(first text, last text)
RETURNS TABLE (key text, grp text, counter text, stored bigint, actual bigint)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    WITH entry AS (
        SELECT
            s.key,
            NULL::text COLLATE "C" AS grp,
            s.grants AS stored_grants, 0 AS grants,
            s.leases AS stored_leases, 0 AS leases,
            s.live_leases AS stored_live_leases, 0 AS live_leases
        FROM pgsemaphore_data.semaphores AS s
        UNION ALL
        SELECT g.key, g.grp, g.grants, 0, g.leases, 0, g.live_leases, 0
        FROM pgsemaphore_data.group_usage AS g
        UNION ALL
        SELECT
            b.key,
            level.grp,
            0, CASE WHEN b.kind = 'grant' THEN b.counted ELSE 0 END,
            0, CASE WHEN b.kind = 'lease' THEN b.counted ELSE 0 END,
            0, (b.kind = 'lease' AND b.status = 'active')::integer
        FROM pgsemaphore_data.slots AS b
        CROSS JOIN LATERAL (VALUES (NULL), (b.grp)) AS level(grp)
        WHERE b.kind IS NOT NULL
    ),
    total AS (
        SELECT
            e.key,
            e.grp,
            sum(e.stored_grants)::bigint AS stored_grants,
            sum(e.grants)::bigint AS grants,
            sum(e.stored_leases)::bigint AS stored_leases,
            sum(e.leases)::bigint AS leases,
            sum(e.stored_live_leases)::bigint AS stored_live_leases,
            sum(e.live_leases)::bigint AS live_leases
        FROM entry AS e
        WHERE e.key >= verify.first COLLATE "C" AND e.key <= verify.last COLLATE "C"
        GROUP BY e.key, e.grp
    )
    SELECT t.key, t.grp, v.counter, v.stored, v.actual
    FROM total AS t
    CROSS JOIN LATERAL (VALUES
        ('grants', t.stored_grants, t.grants),
        ('leases', t.stored_leases, t.leases),
        ('live_leases', t.stored_live_leases, t.live_leases)
    ) AS v(counter, stored, actual)
    WHERE v.stored <> v.actual
    ORDER BY t.key, t.grp NULLS FIRST, v.counter
$$;
COMMENT ON FUNCTION pgsemaphore.verify(text, text) IS 'Counts again what the counters of the keys from first to last say, and returns each that differs: no row is right. A row without grp is about the key as a whole.';

CREATE FUNCTION pgsemaphore.verify(key text)
RETURNS TABLE (key text, grp text, counter text, stored bigint, actual bigint)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT v.key, v.grp, v.counter, v.stored, v.actual
    FROM pgsemaphore.verify(
        coalesce(verify.key, ''),
        coalesce(verify.key, (
            SELECT max(k.key)
            FROM (
                SELECT max(s.key) AS key FROM pgsemaphore_data.semaphores AS s
                UNION ALL
                SELECT max(g.key) FROM pgsemaphore_data.group_usage AS g
                UNION ALL
                SELECT max(b.key) FROM pgsemaphore_data.slots AS b
            ) AS k
        ))
    ) AS v
$$;
COMMENT ON FUNCTION pgsemaphore.verify(text) IS 'Counts again what the counters of a key say (NULL: of all keys) and returns each that differs: no row is right. A row without grp is about the key as a whole.';

ALTER TABLE pgsemaphore_data.audit
    DROP CONSTRAINT audit_action_is_known,
    ADD CONSTRAINT audit_action_is_known CHECK (
        action IN ('settle', 'settle_silent', 'takeover', 'unknown_to_client', 'policy', 'repair')
    );
COMMENT ON TABLE pgsemaphore_data.audit IS 'Declarations: permits that came back without a report of their owner, changes of policies (key is the pattern then), and repairs of counters.';
COMMENT ON VIEW pgsemaphore.audit IS 'Permits that came back, or changed hands, by a declaration and not by their owner''s reports; changes of policies; and repairs of counters.';
COMMENT ON COLUMN pgsemaphore.audit.client_id IS 'Whose permits; NULL for a change of a policy and for a repair.';
COMMENT ON COLUMN pgsemaphore.audit.action IS 'settle (an operator), settle_silent (the policy), takeover (a successor), unknown_to_client (it says that it does not hold them), policy, repair.';
COMMENT ON COLUMN pgsemaphore.audit.grants IS 'Permits of grants that came back, or went on with a successor; of a repair, by how much the counter was too high.';
COMMENT ON COLUMN pgsemaphore.audit.detail IS 'The reason that was given; of a change of a policy the whole policy, or deleted; of a repair every counter that it changed.';

CREATE FUNCTION pgsemaphore_data.recount(of_key text, actor text, OUT differences jsonb)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- The fence moves: a round that read before this repeats.
    UPDATE pgsemaphore_data.semaphores AS s SET version = s.version + 1, writer = 0 WHERE s.key = of_key COLLATE "C";
    SELECT jsonb_agg(to_jsonb(v)) INTO differences FROM pgsemaphore.verify(of_key) AS v;
    IF differences IS NULL THEN
        RETURN;
    END IF;
    UPDATE pgsemaphore_data.semaphores AS s
    SET grants = coalesce(d.grants, s.grants),
        leases = coalesce(d.leases, s.leases),
        live_leases = coalesce(d.live_leases, s.live_leases)
    FROM (
        SELECT
            max(v.actual) FILTER (WHERE v.counter = 'grants') AS grants,
            max(v.actual) FILTER (WHERE v.counter = 'leases') AS leases,
            max(v.actual) FILTER (WHERE v.counter = 'live_leases') AS live_leases
        FROM jsonb_to_recordset(differences) AS v(grp text, counter text, actual bigint)
        WHERE v.grp IS NULL
    ) AS d
    WHERE s.key = of_key COLLATE "C";
    INSERT INTO pgsemaphore_data.group_usage (key, grp)
    SELECT DISTINCT of_key, v.grp
    FROM jsonb_to_recordset(differences) AS v(grp text)
    WHERE v.grp IS NOT NULL
    ON CONFLICT ON CONSTRAINT group_usage_pkey DO NOTHING;
    UPDATE pgsemaphore_data.group_usage AS g
    SET grants = coalesce(d.grants, g.grants),
        leases = coalesce(d.leases, g.leases),
        live_leases = coalesce(d.live_leases, g.live_leases)
    FROM (
        SELECT
            v.grp,
            max(v.actual) FILTER (WHERE v.counter = 'grants') AS grants,
            max(v.actual) FILTER (WHERE v.counter = 'leases') AS leases,
            max(v.actual) FILTER (WHERE v.counter = 'live_leases') AS live_leases
        FROM jsonb_to_recordset(differences) AS v(grp text, counter text, actual bigint)
        GROUP BY v.grp
    ) AS d
    WHERE g.key = of_key COLLATE "C" AND g.grp = d.grp COLLATE "C";

    INSERT INTO pgsemaphore_data.audit (key, at, action, actor, grants, leases, detail)
    SELECT
        of_key,
        clock_timestamp(),
        'repair',
        recount.actor,
        coalesce(sum(v.stored - v.actual) FILTER (WHERE v.counter = 'grants'), 0),
        coalesce(sum(v.stored - v.actual) FILTER (WHERE v.counter = 'leases'), 0),
        differences::text
    FROM jsonb_to_recordset(differences) AS v(grp text, counter text, stored bigint, actual bigint)
    WHERE v.grp IS NULL;
    PERFORM pg_notify('pgsemaphore', 'changed - ' || of_key);
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.recount IS 'Makes the counters of a key what its blocks say. Returns those that differed, NULL if none did.';

CREATE FUNCTION pgsemaphore.repair(key text, actor text DEFAULT session_user)
RETURNS TABLE (key text, grp text, counter text, stored bigint, actual bigint)
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT v.key, v.grp, v.counter, v.stored, v.actual
    FROM pgsemaphore_data.recount(repair.key, pgsemaphore_data.who(repair.actor)) AS r
    CROSS JOIN LATERAL jsonb_to_recordset(r.differences)
        AS v(key text, grp text, counter text, stored bigint, actual bigint)
$$;
COMMENT ON FUNCTION pgsemaphore.repair IS 'Makes the counters of a key what its blocks say, and writes to the audit what it changed. Returns the counters that differed, as verify does; no row: none did.';

REVOKE ALL ON FUNCTION pgsemaphore.verify(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgsemaphore.verify(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgsemaphore_data.recount FROM PUBLIC;
REVOKE ALL ON FUNCTION pgsemaphore.repair FROM PUBLIC;
