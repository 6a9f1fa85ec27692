-- What people call. configure is the one validator of policies: HTTP, the command line and psql all go through it. A
-- fault raises SQLSTATE 22023 with the field's name (a / joins the parts of a path) as the error's COLUMN.
-- Those in schema pgsemaphore run with their owner's rights: who may execute them needs none on the tables.

CREATE FUNCTION pgsemaphore_data.refuse(field text, why text)
RETURNS void
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION '%: %', field, why USING ERRCODE = 'invalid_parameter_value', COLUMN = field;
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.refuse IS 'Raises 22023 for a field.';

CREATE FUNCTION pgsemaphore_data.pointer_part(name text, OUT part text)
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT replace(replace(name, '~', '~0'), '/', '~1') $$;
COMMENT ON FUNCTION pgsemaphore_data.pointer_part IS 'A member''s name as part of a JSON Pointer.';

CREATE FUNCTION pgsemaphore_data.check_name(field text, name text, low integer, high integer)
RETURNS void
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF name IS NULL THEN
        PERFORM pgsemaphore_data.refuse(field, 'must not be null');
    ELSIF octet_length(name) NOT BETWEEN low AND high THEN
        PERFORM pgsemaphore_data.refuse(field, format('must be %s to %s bytes, not %s', low, high, octet_length(name)));
    ELSIF name IN ('.', '..') THEN
        PERFORM pgsemaphore_data.refuse(field, 'must not be "." or ".."');
    END IF;
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.check_name IS 'Refuses a name that is too short, too long, or folded away in URLs.';

CREATE FUNCTION pgsemaphore_data.check_pattern(pattern text)
RETURNS void
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pgsemaphore_data.check_name('pattern', pattern, 1, 512 + (pattern LIKE '%*')::integer);
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.check_pattern IS 'Refuses what is neither a key nor a key''s prefix with a * behind it.';

CREATE FUNCTION pgsemaphore_data.check_number(field text, value jsonb, low bigint, high bigint, decimals integer DEFAULT 0)
RETURNS void
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    number numeric;
BEGIN
    IF value IS NULL OR jsonb_typeof(value) = 'null' THEN
        RETURN;
    ELSIF jsonb_typeof(value) = 'number' THEN
        number := value::numeric;
        IF number BETWEEN low AND high
            AND (decimals > 0 OR scale(number) = 0)
            AND scale(trim_scale(number)) <= decimals THEN
            RETURN;
        END IF;
    END IF;
    PERFORM pgsemaphore_data.refuse(field, format(
        'must be %s from %s to %s',
        CASE WHEN decimals = 0 THEN 'an integer' ELSE format('a number with at most %s decimals', decimals) END,
        low, high
    ));
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.check_number IS 'Refuses a JSON value that is neither null nor a number of the range.';

CREATE FUNCTION pgsemaphore_data.policy_defaults(OUT policy jsonb)
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_build_object(
        'limit', NULL,
        'limit_function', NULL,
        'group_limits', '{}'::jsonb,
        'paused', false,
        'paused_groups', '[]'::jsonb,
        'group_limit_function', NULL,
        'can_grant_function', NULL,
        'round_wait_ms', 0,
        'round_period_ms', 100,
        'eager', false,
        'grant_timeout_ms', 10000,
        'provisioning', 'none',
        'lease_reserve', NULL,
        'lease_extra', NULL,
        'lease_extra_ratio', NULL,
        'permits_per_lease', 64,
        'lease_ttl_ms', 1800000,
        'limited_groups', 'excluded',
        'settle_lost_clients_after_ms', NULL
    )
$$;
COMMENT ON FUNCTION pgsemaphore_data.policy_defaults IS 'Every field of a policy with its default.';

CREATE FUNCTION pgsemaphore_data.policy_document(pattern text, OUT policy jsonb)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT jsonb_build_object(
        'pattern', p.pattern,
        'limit', p.permit_limit,
        'limit_function', p.limit_function,
        'group_limits', coalesce((
            SELECT jsonb_object_agg(g.grp, g.permit_limit)
            FROM pgsemaphore_data.group_limits AS g
            WHERE g.pattern = p.pattern
        ), '{}'),
        'paused', p.paused,
        'paused_groups', p.paused_groups,
        'group_limit_function', p.group_limit_function,
        'can_grant_function', p.can_grant_function,
        'round_wait_ms', p.round_wait_ms,
        'round_period_ms', p.round_period_ms,
        'eager', p.eager,
        'grant_timeout_ms', p.grant_timeout_ms,
        'provisioning', p.provisioning,
        'lease_reserve', p.lease_reserve,
        'lease_extra', p.lease_extra,
        'lease_extra_ratio', trim_scale(p.lease_extra_ratio),
        'permits_per_lease', p.permits_per_lease,
        'lease_ttl_ms', p.lease_ttl_ms,
        'limited_groups', p.limited_groups,
        'settle_lost_clients_after_ms', p.settle_lost_clients_after_ms,
        'set_by', p.set_by,
        'set_at', to_char(p.set_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
    )
    FROM pgsemaphore_data.policies AS p
    WHERE p.pattern = policy_document.pattern COLLATE "C"
$$;
COMMENT ON FUNCTION pgsemaphore_data.policy_document IS 'The policy of a pattern as HTTP shows it, NULL without one.';

CREATE FUNCTION pgsemaphore_data.merge_policy(current jsonb, changes jsonb, OUT merged jsonb)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    read_only CONSTANT text[] := ARRAY['pattern', 'set_by', 'set_at'];
    defaults CONSTANT jsonb := pgsemaphore_data.policy_defaults();
    unknown text;
BEGIN
    IF jsonb_typeof(changes) IS DISTINCT FROM 'object' THEN
        PERFORM pgsemaphore_data.refuse('', 'a policy must be a JSON object');
    END IF;
    SELECT field INTO unknown
    FROM jsonb_object_keys(changes) AS field
    WHERE NOT defaults ? field AND field <> ALL (read_only)
    ORDER BY field LIMIT 1;
    IF unknown IS NOT NULL THEN
        PERFORM pgsemaphore_data.refuse(pgsemaphore_data.pointer_part(unknown), 'is not a field of a policy');
    END IF;
    merged := defaults
        || (coalesce(current, '{}') - ARRAY(SELECT jsonb_object_keys(changes)))
        || coalesce((SELECT jsonb_object_agg(c.key, c.value) FROM jsonb_each(changes) AS c WHERE jsonb_typeof(c.value) <> 'null'), '{}');
    merged := merged - read_only;
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.merge_policy IS 'A policy with changes applied; null stands for the default.';

CREATE FUNCTION pgsemaphore_data.check_limits(policy jsonb)
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    entry record;
BEGIN
    PERFORM pgsemaphore_data.check_number('limit', policy -> 'limit', 0, 2147483647);
    IF policy ->> 'limit' IS NULL AND policy ->> 'limit_function' IS NULL THEN
        PERFORM pgsemaphore_data.refuse('limit', 'is required, unless limit_function is set');
    ELSIF policy ->> 'limit' IS NOT NULL AND policy ->> 'limit_function' IS NOT NULL THEN
        PERFORM pgsemaphore_data.refuse('limit_function', 'excludes limit: set one of them to null');
    END IF;
    IF jsonb_typeof(policy -> 'group_limits') <> 'object' THEN
        PERFORM pgsemaphore_data.refuse('group_limits', 'must be an object of integers by group');
    END IF;
    FOR entry IN SELECT l.key, l.value, 'group_limits/' || pgsemaphore_data.pointer_part(l.key) AS field
        FROM jsonb_each(policy -> 'group_limits') AS l ORDER BY l.key COLLATE "C"
    LOOP
        PERFORM pgsemaphore_data.check_name(entry.field, entry.key, 0, 256);
        IF jsonb_typeof(entry.value) = 'null' THEN
            PERFORM pgsemaphore_data.refuse(entry.field, 'must not be null; leave the group out instead');
        END IF;
        PERFORM pgsemaphore_data.check_number(entry.field, entry.value, 0, 2147483647);
    END LOOP;
    IF jsonb_typeof(policy -> 'paused_groups') <> 'array' THEN
        PERFORM pgsemaphore_data.refuse('paused_groups', 'must be an array of groups');
    END IF;
    FOR entry IN SELECT g.value, 'paused_groups/' || g.n - 1 AS field
        FROM jsonb_array_elements(policy -> 'paused_groups') WITH ORDINALITY AS g(value, n) ORDER BY g.n
    LOOP
        IF jsonb_typeof(entry.value) <> 'string' THEN
            PERFORM pgsemaphore_data.refuse(entry.field, 'must be a string');
        END IF;
        PERFORM pgsemaphore_data.check_name(entry.field, entry.value #>> '{}', 0, 256);
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.check_limits IS 'Refuses a policy whose limits or paused groups are wrong.';

CREATE FUNCTION pgsemaphore_data.check_leases(policy jsonb)
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    mode CONSTANT text := policy ->> 'provisioning';
    field text;
BEGIN
    IF jsonb_typeof(policy -> 'provisioning') <> 'string' OR mode NOT IN ('none', 'strict', 'under', 'over') THEN
        PERFORM pgsemaphore_data.refuse('provisioning', 'must be none, strict, under or over');
    END IF;
    IF jsonb_typeof(policy -> 'limited_groups') <> 'string'
        OR policy ->> 'limited_groups' NOT IN ('excluded', 'within_group_limit') THEN
        PERFORM pgsemaphore_data.refuse('limited_groups', 'must be excluded or within_group_limit');
    END IF;
    PERFORM pgsemaphore_data.check_number('lease_reserve', policy -> 'lease_reserve', 0, 2147483647);
    PERFORM pgsemaphore_data.check_number('lease_extra', policy -> 'lease_extra', 0, 2147483647);
    PERFORM pgsemaphore_data.check_number('lease_extra_ratio', policy -> 'lease_extra_ratio', 0, 1000, 6);
    PERFORM pgsemaphore_data.check_number('permits_per_lease', policy -> 'permits_per_lease', 1, 1000000);
    PERFORM pgsemaphore_data.check_number('lease_ttl_ms', policy -> 'lease_ttl_ms', 500, 2592000000);
    IF mode <> 'under' AND policy ->> 'lease_reserve' IS NOT NULL THEN
        PERFORM pgsemaphore_data.refuse('lease_reserve', 'belongs to provisioning under; set it to null');
    END IF;
    FOREACH field IN ARRAY ARRAY['lease_extra', 'lease_extra_ratio'] LOOP
        IF mode <> 'over' AND policy ->> field IS NOT NULL THEN
            PERFORM pgsemaphore_data.refuse(field, 'belongs to provisioning over; set it to null');
        END IF;
    END LOOP;
    IF mode = 'under' AND policy ->> 'lease_reserve' IS NULL THEN
        PERFORM pgsemaphore_data.refuse('lease_reserve', 'is required by provisioning under');
    ELSIF mode = 'over' AND policy ->> 'lease_extra' IS NULL AND policy ->> 'lease_extra_ratio' IS NULL THEN
        PERFORM pgsemaphore_data.refuse('lease_extra', 'or lease_extra_ratio is required by provisioning over');
    ELSIF mode = 'over' AND policy ->> 'lease_extra' IS NOT NULL AND policy ->> 'lease_extra_ratio' IS NOT NULL THEN
        PERFORM pgsemaphore_data.refuse('lease_extra_ratio', 'excludes lease_extra: set one of them to null');
    END IF;
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.check_leases IS 'Refuses a policy whose lease fields are wrong.';

CREATE FUNCTION pgsemaphore_data.check_policy(policy jsonb)
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    field text;
BEGIN
    FOREACH field IN ARRAY ARRAY['limit_function', 'group_limit_function', 'can_grant_function'] LOOP
        IF jsonb_typeof(policy -> field) NOT IN ('string', 'null') THEN
            PERFORM pgsemaphore_data.refuse(field, 'must be the name of a function');
        ELSIF octet_length(policy ->> field) NOT BETWEEN 1 AND 256 THEN
            PERFORM pgsemaphore_data.refuse(field, 'must be the name of a function, 1 to 256 bytes');
        END IF;
    END LOOP;
    PERFORM pgsemaphore_data.check_function('limit_function', policy ->> 'limit_function', 'text', 'integer');
    PERFORM pgsemaphore_data.check_function('group_limit_function', policy ->> 'group_limit_function', 'text, text', 'integer');
    PERFORM pgsemaphore_data.check_function('can_grant_function', policy ->> 'can_grant_function', 'text, text, text', 'boolean');
    PERFORM pgsemaphore_data.check_limits(policy);
    FOREACH field IN ARRAY ARRAY['paused', 'eager'] LOOP
        IF jsonb_typeof(policy -> field) <> 'boolean' THEN
            PERFORM pgsemaphore_data.refuse(field, 'must be true or false');
        END IF;
    END LOOP;
    PERFORM pgsemaphore_data.check_number('round_wait_ms', policy -> 'round_wait_ms', 0, 60000);
    PERFORM pgsemaphore_data.check_number('round_period_ms', policy -> 'round_period_ms', 0, 3600000);
    PERFORM pgsemaphore_data.check_number('grant_timeout_ms', policy -> 'grant_timeout_ms', 100, 86400000);
    PERFORM pgsemaphore_data.check_number(
        'settle_lost_clients_after_ms', policy -> 'settle_lost_clients_after_ms', 5000, 2592000000
    );
    PERFORM pgsemaphore_data.check_leases(policy);
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.check_policy IS 'Refuses a policy that breaks a rule; the first fault only.';

CREATE FUNCTION pgsemaphore_data.write_policy(pattern text, policy jsonb, actor text)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO pgsemaphore_data.policies AS p (
        pattern, permit_limit, limit_function, paused, paused_groups, group_limit_function, can_grant_function,
        round_wait_ms, round_period_ms, eager, grant_timeout_ms, provisioning, lease_reserve, lease_extra,
        lease_extra_ratio, permits_per_lease, lease_ttl_ms, limited_groups, settle_lost_clients_after_ms, set_by, set_at
    )
    SELECT
        write_policy.pattern, m."limit", m.limit_function, m.paused,
        ARRAY(SELECT DISTINCT g COLLATE "C" FROM unnest(m.paused_groups) AS g ORDER BY 1),
        m.group_limit_function, m.can_grant_function, m.round_wait_ms, m.round_period_ms, m.eager, m.grant_timeout_ms,
        m.provisioning, m.lease_reserve, m.lease_extra, m.lease_extra_ratio, m.permits_per_lease, m.lease_ttl_ms,
        m.limited_groups, m.settle_lost_clients_after_ms, write_policy.actor, clock_timestamp()
    FROM jsonb_to_record(write_policy.policy) AS m(
        "limit" integer, limit_function text, paused boolean, paused_groups text[], group_limit_function text,
        can_grant_function text, round_wait_ms integer, round_period_ms integer, eager boolean,
        grant_timeout_ms integer, provisioning text, lease_reserve integer, lease_extra integer,
        lease_extra_ratio numeric, permits_per_lease integer, lease_ttl_ms bigint, limited_groups text,
        settle_lost_clients_after_ms bigint
    )
    ON CONFLICT ON CONSTRAINT policies_pkey DO UPDATE SET
        permit_limit = EXCLUDED.permit_limit,
        limit_function = EXCLUDED.limit_function,
        paused = EXCLUDED.paused,
        paused_groups = EXCLUDED.paused_groups,
        group_limit_function = EXCLUDED.group_limit_function,
        can_grant_function = EXCLUDED.can_grant_function,
        round_wait_ms = EXCLUDED.round_wait_ms,
        round_period_ms = EXCLUDED.round_period_ms,
        eager = EXCLUDED.eager,
        grant_timeout_ms = EXCLUDED.grant_timeout_ms,
        provisioning = EXCLUDED.provisioning,
        lease_reserve = EXCLUDED.lease_reserve,
        lease_extra = EXCLUDED.lease_extra,
        lease_extra_ratio = EXCLUDED.lease_extra_ratio,
        permits_per_lease = EXCLUDED.permits_per_lease,
        lease_ttl_ms = EXCLUDED.lease_ttl_ms,
        limited_groups = EXCLUDED.limited_groups,
        settle_lost_clients_after_ms = EXCLUDED.settle_lost_clients_after_ms,
        set_by = EXCLUDED.set_by,
        set_at = EXCLUDED.set_at;

    DELETE FROM pgsemaphore_data.group_limits AS g
    WHERE g.pattern = write_policy.pattern AND NOT write_policy.policy -> 'group_limits' ? g.grp;

    INSERT INTO pgsemaphore_data.group_limits AS g (pattern, grp, permit_limit)
    SELECT write_policy.pattern, l.key, l.value::integer
    FROM jsonb_each(write_policy.policy -> 'group_limits') AS l
    ON CONFLICT ON CONSTRAINT group_limits_pkey DO UPDATE SET permit_limit = EXCLUDED.permit_limit
    WHERE g.permit_limit <> EXCLUDED.permit_limit;

    INSERT INTO pgsemaphore_data.audit (key, at, action, actor, detail)
    VALUES (write_policy.pattern, clock_timestamp(), 'policy', write_policy.actor, write_policy.policy::text);

    SELECT pg_notify('pgsemaphore', 'policies');
$$;
COMMENT ON FUNCTION pgsemaphore_data.write_policy IS 'Stores a policy that was checked, and tells the holders at commit.';

CREATE FUNCTION pgsemaphore_data.who(claimed text, prefix text DEFAULT '', OUT actor text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN has_table_privilege(session_user, 'pgsemaphore_data.audit', 'INSERT') THEN coalesce(claimed, prefix || session_user)
        ELSE prefix || session_user
    END
$$;
COMMENT ON FUNCTION pgsemaphore_data.who IS 'Who acts: the actor that is claimed, if the session''s login could write the audit itself, as holders can; else that login.';

CREATE FUNCTION pgsemaphore.configure(pattern text, changes jsonb, actor text DEFAULT session_user, OUT policy jsonb)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    merged jsonb;
BEGIN
    PERFORM pgsemaphore_data.check_pattern(pattern);
    -- Two merges of one pattern at once: the second one reads what the first one wrote.
    PERFORM pg_advisory_xact_lock(hashtextextended('pgsemaphore policy ' || pattern, 0));
    merged := pgsemaphore_data.merge_policy(pgsemaphore_data.policy_document(pattern), changes);
    PERFORM pgsemaphore_data.check_policy(merged);
    PERFORM pgsemaphore_data.write_policy(pattern, merged, pgsemaphore_data.who(actor));
    policy := pgsemaphore_data.policy_document(pattern);
END
$$;
COMMENT ON FUNCTION pgsemaphore.configure IS 'Creates a policy or changes the fields given of one, for example configure(''account:*'', ''{"limit": 100}''); null sets a field to its default. Holders heed it from the next round on. Returns the policy.';

CREATE FUNCTION pgsemaphore.set_limit(
    pattern text, new_limit bigint, actor text DEFAULT session_user, OUT permit_limit integer
)
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (c.policy ->> 'limit')::integer
    FROM pgsemaphore.configure(set_limit.pattern, jsonb_build_object('limit', set_limit.new_limit), set_limit.actor) AS c
$$;
COMMENT ON FUNCTION pgsemaphore.set_limit IS 'Sets the limit of a policy, which it creates if need be. Lowering it evicts nothing.';

CREATE FUNCTION pgsemaphore.set_group_limit(
    pattern text, grp text, new_limit bigint, actor text DEFAULT session_user, OUT permit_limit integer
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    current jsonb;
BEGIN
    PERFORM pgsemaphore_data.check_pattern(pattern);
    PERFORM pgsemaphore_data.check_name('group', grp, 0, 256);
    PERFORM pgsemaphore_data.check_number('limit', to_jsonb(new_limit), 0, 2147483647);
    PERFORM pg_advisory_xact_lock(hashtextextended('pgsemaphore policy ' || pattern, 0));
    current := pgsemaphore_data.policy_document(pattern) -> 'group_limits';
    IF current IS NULL THEN
        RAISE EXCEPTION 'there is no policy of pattern %: set its limit first', pattern USING ERRCODE = 'no_data_found';
    END IF;
    PERFORM pgsemaphore.configure(
        pattern,
        jsonb_build_object('group_limits', CASE
            WHEN new_limit IS NULL THEN current - grp
            ELSE current || jsonb_build_object(grp, new_limit)
        END),
        actor
    );
    permit_limit := new_limit;
END
$$;
COMMENT ON FUNCTION pgsemaphore.set_group_limit IS 'Sets the ceiling of a group in a policy that exists; NULL removes it.';

CREATE FUNCTION pgsemaphore.delete_policy(pattern text, actor text DEFAULT session_user, OUT deleted boolean)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM pgsemaphore_data.policies AS p WHERE p.pattern = delete_policy.pattern COLLATE "C";
    deleted := FOUND;
    IF deleted THEN
        INSERT INTO pgsemaphore_data.audit (key, at, action, actor, detail)
        VALUES (delete_policy.pattern, clock_timestamp(), 'policy', pgsemaphore_data.who(delete_policy.actor), 'deleted');
    END IF;
    PERFORM pg_notify('pgsemaphore', 'policies');
END
$$;
COMMENT ON FUNCTION pgsemaphore.delete_policy IS 'Deletes a policy and its group limits; says whether there was one. Blocks that exist go on.';

CREATE FUNCTION pgsemaphore_data.apply_policy(
    pattern text, policy jsonb, force boolean, actor text, OUT outcome text, OUT set_by text, OUT set_at text
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    current jsonb;
    wanted jsonb;
BEGIN
    PERFORM pgsemaphore_data.check_pattern(pattern);
    PERFORM pg_advisory_xact_lock(hashtextextended('pgsemaphore policy ' || pattern, 0));
    current := pgsemaphore_data.policy_document(pattern);
    IF jsonb_typeof(policy) = 'object' THEN
        policy := (pgsemaphore_data.policy_defaults() - 'group_limits') || policy;
    END IF;
    wanted := pgsemaphore_data.merge_policy(current, policy);
    PERFORM pgsemaphore_data.check_policy(wanted);
    wanted := jsonb_set(wanted, '{paused_groups}', (
        SELECT coalesce(jsonb_agg(DISTINCT g COLLATE "C" ORDER BY g COLLATE "C"), '[]')
        FROM jsonb_array_elements_text(wanted -> 'paused_groups') AS g
    ));
    set_by := current ->> 'set_by';
    set_at := current ->> 'set_at';
    outcome := CASE
        WHEN current IS NULL THEN 'created'
        WHEN current - ARRAY['pattern', 'set_by', 'set_at'] = wanted THEN 'unchanged'
        WHEN NOT force AND NOT starts_with(set_by, 'apply:') THEN 'left_alone'
        ELSE 'changed'
    END;
    IF outcome IN ('created', 'changed') THEN
        PERFORM pgsemaphore_data.write_policy(pattern, wanted, pgsemaphore_data.who(actor, 'apply:'));
    END IF;
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.apply_policy IS 'Makes the policy of a pattern what a file says: fields left out take their defaults, group limits left out are kept. One that differs and was last changed by another actor than apply:... is left alone, unless by force. Returns created, changed, unchanged or left_alone, and who changed it before.';

CREATE FUNCTION pgsemaphore_data.settle(
    of_key text, of_client text, reason text, actor text, force boolean,
    OUT generation bigint, OUT grants bigint, OUT leases bigint
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held pgsemaphore_data.semaphores;
    who pgsemaphore_data.clients;
    gone record;
    settled_at timestamptz;
BEGIN
    -- The fence moves: a round that read before this repeats.
    UPDATE pgsemaphore_data.semaphores AS s SET version = s.version + 1, writer = 0
    WHERE s.key = of_key COLLATE "C" RETURNING * INTO held;
    settled_at := clock_timestamp();
    SELECT * INTO who FROM pgsemaphore_data.clients AS c
    WHERE c.key = of_key COLLATE "C" AND c.client_id = of_client COLLATE "C" AND c.generation IS NOT NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'client % was never heard of on key %', of_client, of_key USING ERRCODE = 'no_data_found';
    END IF;
    SELECT
        coalesce(sum(b.counted) FILTER (WHERE b.kind = 'grant'), 0) AS grants,
        coalesce(sum(b.counted) FILTER (WHERE b.kind = 'lease'), 0) AS leases,
        count(*) FILTER (WHERE b.kind = 'lease' AND b.status = 'active') AS live_leases,
        count(*)::integer AS slots
    INTO gone
    FROM pgsemaphore_data.slots AS b
    WHERE b.key = held.key AND b.client_id = who.client_id AND b.kind IS NOT NULL;
    generation := greatest(who.lowest_generation, who.generation + 1);
    grants := gone.grants;
    leases := gone.leases;
    IF generation = who.lowest_generation AND gone.slots = 0 THEN
        RETURN;
    END IF;
    IF NOT force AND who.last_seen > settled_at - interval '10 minutes' THEN
        RAISE EXCEPTION 'client % was heard % s ago and holds % permits of %',
            of_client, floor(extract(epoch FROM greatest(interval '0', settled_at - who.last_seen))), grants + leases, of_key
            USING ERRCODE = 'object_in_use', HINT = 'If nothing of it runs any more: pass force => true.';
    END IF;

    UPDATE pgsemaphore_data.clients AS c
    SET lowest_generation = settle.generation, fenced_at = settled_at, blocked = '[]', blocked_at = NULL,
        lease_slots = '{}', open_blocks = 0
    WHERE c.key = who.key AND c.client_id = who.client_id;
    UPDATE pgsemaphore_data.group_usage AS g
    SET grants = g.grants - b.grants, leases = g.leases - b.leases, live_leases = g.live_leases - b.live_leases
    FROM (
        SELECT
            s.grp,
            coalesce(sum(s.counted) FILTER (WHERE s.kind = 'grant'), 0) AS grants,
            coalesce(sum(s.counted) FILTER (WHERE s.kind = 'lease'), 0) AS leases,
            count(*) FILTER (WHERE s.kind = 'lease' AND s.status = 'active') AS live_leases
        FROM pgsemaphore_data.slots AS s
        WHERE s.key = held.key AND s.client_id = who.client_id AND s.kind IS NOT NULL
        GROUP BY s.grp
    ) AS b
    WHERE g.key = held.key AND g.grp = b.grp;
    WITH batch AS (
        SELECT b.n, b.deadline, b.open - coalesce(left_it.grants, 0) AS open, b.place
        FROM unnest(held.batch_ns, held.batch_deadlines, held.batch_open) WITH ORDINALITY AS b(n, deadline, open, place)
        LEFT JOIN (
            SELECT s.batch, count(*)::integer AS grants
            FROM pgsemaphore_data.slots AS s
            WHERE s.key = held.key AND s.client_id = who.client_id AND s.kind IS NOT NULL AND s.batch IS NOT NULL
            GROUP BY s.batch
        ) AS left_it ON left_it.batch = b.n
    ),
    batches AS (
        SELECT
            coalesce(array_agg(b.n ORDER BY b.place), '{}') AS ns,
            coalesce(array_agg(b.deadline ORDER BY b.place), '{}') AS deadlines,
            coalesce(array_agg(b.open ORDER BY b.place), '{}') AS open,
            min(b.deadline) AS next
        FROM batch AS b
        WHERE b.open > 0
    )
    UPDATE pgsemaphore_data.semaphores AS s
    SET grants = s.grants - settle.grants,
        leases = s.leases - settle.leases,
        live_leases = s.live_leases - gone.live_leases,
        unlisted_slots = s.unlisted_slots + gone.slots,
        batch_ns = b.ns,
        batch_deadlines = b.deadlines,
        batch_open = b.open,
        next_deadline = least(b.next, s.silence_due),
        last_message_at = settled_at
    FROM batches AS b
    WHERE s.key = held.key;
    UPDATE pgsemaphore_data.slots AS b
    SET kind = NULL, client_id = '', grp = '', permits = 0, used = 0, released = 0, status = 'active', deadline = NULL,
        batch = NULL, created_at = NULL, stopped = false, ttl_ms = 0, reported_at = NULL, round = 0
    WHERE b.key = held.key AND b.client_id = who.client_id AND b.kind IS NOT NULL;
    PERFORM pgsemaphore_data.mark_contended(held.key);

    INSERT INTO pgsemaphore_data.audit (key, at, client_id, action, actor, generation, grants, leases, detail)
    VALUES (who.key, settled_at, who.client_id, 'settle', settle.actor, settle.generation, settle.grants, settle.leases, reason);
    PERFORM pg_notify('pgsemaphore', 'changed - ' || who.key);
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.settle IS 'Declares a client dead on a key: what it holds comes back, and its processes are refused. One that was heard within 10 minutes only by force.';

CREATE FUNCTION pgsemaphore_data.mark_contended(of_key text)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE pgsemaphore_data.semaphores AS s
    SET contended_until = (
        SELECT max(c.blocked_at) + interval '75 seconds'
        FROM pgsemaphore_data.clients AS c
        CROSS JOIN LATERAL jsonb_to_recordset(c.blocked) AS b(reason text)
        WHERE c.key = s.key AND b.reason = 'limit'
    )
    WHERE s.key = of_key COLLATE "C" AND s.contended_until IS NOT NULL;

    UPDATE pgsemaphore_data.group_usage AS g
    SET contended_until = (
        SELECT max(c.blocked_at) + interval '75 seconds'
        FROM pgsemaphore_data.clients AS c
        CROSS JOIN LATERAL jsonb_to_recordset(c.blocked) AS b("group" text, reason text)
        WHERE c.key = g.key AND b."group" = g.grp AND b.reason = 'group_limit'
    )
    WHERE g.key = of_key COLLATE "C" AND g.contended_until IS NOT NULL;
$$;
COMMENT ON FUNCTION pgsemaphore_data.mark_contended IS 'Until when a key and its groups count as contended, by the demand that is blocked now.';

CREATE FUNCTION pgsemaphore.settle_client(
    key text, client_id text, reason text DEFAULT NULL, actor text DEFAULT session_user, force boolean DEFAULT false
)
RETURNS TABLE (key text, client_id text, generation bigint, grants bigint, leases bigint)
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT settle_client.key, settle_client.client_id, s.generation, s.grants, s.leases
    FROM pgsemaphore_data.settle(
        settle_client.key, settle_client.client_id, settle_client.reason, pgsemaphore_data.who(settle_client.actor),
        coalesce(settle_client.force, false)
    ) AS s
$$;
COMMENT ON FUNCTION pgsemaphore.settle_client IS 'Declares a client dead on a key: all its permits come back (that many grants and leases), and processes of lower generations than the one returned are refused. Make sure that it runs nothing more: a client that was heard within 10 minutes is settled only with force => true.';

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pgsemaphore FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pgsemaphore_data FROM PUBLIC;
