-- Functions of users that say limits and permissions. They are called in a round's transaction; an error of one, or no
-- answer within 250 ms for all of them, costs only what was asked of it.

CREATE FUNCTION pgsemaphore_data.function_of(name text, arguments text, result regtype, OUT id oid)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    SELECT p.oid INTO id
    FROM pg_proc AS p
    WHERE p.oid = coalesce(
            to_regprocedure(format('%s(%s)', name, arguments)),
            to_regprocedure(format('public.%s(%s)', name, arguments))
        )
        AND p.prokind = 'f' AND NOT p.proretset AND p.prorettype = result;
EXCEPTION
    -- Classes of errors: a text that is no name, a schema that there is not or that the caller may not use.
    WHEN syntax_error_or_access_rule_violation OR data_exception OR invalid_schema_name OR feature_not_supported
        OR program_limit_exceeded THEN
        id := NULL;
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.function_of IS 'The function of that name and signature; a name without schema is one of schema public. NULL if there is none.';

CREATE FUNCTION pgsemaphore_data.check_function(field text, name text, arguments text, result regtype)
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    id CONSTANT oid := pgsemaphore_data.function_of(name, arguments, result);
    caller text;
BEGIN
    IF name IS NULL THEN
        RETURN;
    ELSIF id IS NULL THEN
        PERFORM pgsemaphore_data.refuse(field, format(
            'must be a function (%s) returns %s that exists, in a schema that its caller may use; give its schema too, like public.my_function',
            arguments, result
        ));
    END IF;
    -- Roles are of the whole cluster: another database may have made pgsemaphore_holder, and this one does without it.
    FOR caller IN
        SELECT r.rolname
        FROM pg_roles AS r
        WHERE r.rolname = current_user
            OR r.rolname = 'pgsemaphore_holder' AND has_schema_privilege(r.oid, 'pgsemaphore_data', 'USAGE')
    LOOP
        IF NOT (SELECT has_schema_privilege(caller, p.pronamespace, 'USAGE') FROM pg_proc AS p WHERE p.oid = id) THEN
            PERFORM pgsemaphore_data.refuse(field, format('must be in a schema that role %I may use: grant it USAGE', caller));
        END IF;
        IF NOT has_function_privilege(caller, id, 'EXECUTE') THEN
            PERFORM pgsemaphore_data.refuse(field, format('must be executable by role %I: grant it EXECUTE', caller));
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.check_function IS 'Refuses a field that names no function of the signature, or one that holders may not call.';

CREATE FUNCTION pgsemaphore_data.path_of_functions(OUT path text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce((
        SELECT c.path
        FROM pg_db_role_setting AS s
        LEFT JOIN pg_roles AS r ON r.oid = s.setrole
        JOIN pg_database AS d ON d.datname = current_database() AND s.setdatabase IN (0, d.oid)
        CROSS JOIN LATERAL unnest(s.setconfig) AS e(entry)
        CROSS JOIN LATERAL (SELECT substr(e.entry, length('search_path=') + 1)) AS c(path)
        WHERE (s.setrole = 0 OR r.rolname = session_user)
            AND starts_with(e.entry, 'search_path=')
            AND c.path <> 'pg_catalog, pg_temp'
        ORDER BY s.setrole <> 0 DESC, s.setdatabase <> 0 DESC
        LIMIT 1
    ), '"$user", public')
$$;
COMMENT ON FUNCTION pgsemaphore_data.path_of_functions IS 'The search_path that the login''s sessions would have if holders did not pin theirs: of the login in this database, of the login, of the database, or PostgreSQL''s own.';

CREATE FUNCTION pgsemaphore_data.session_state(OUT state text[])
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        ARRAY[
            session_user::text, current_setting('role'), pg_my_temp_schema()::text,
            current_setting('transaction_isolation'), current_setting('transaction_read_only'),
            current_setting('synchronous_commit'), current_setting('statement_timeout'), current_setting('lock_timeout')
        ]
        || ARRAY(SELECT p.name || ' ' || p.prepare_time FROM pg_prepared_statements AS p ORDER BY p.name)
        || ARRAY(SELECT l.channel FROM pg_listening_channels() AS l(channel) ORDER BY l.channel)
$$;
COMMENT ON FUNCTION pgsemaphore_data.session_state IS 'What functions of users must leave as it is in a session.';

CREATE FUNCTION pgsemaphore_data.resolve(
    key text, limit_function text, group_limit_function text, groups text[], can_grant_function text,
    clients text[], client_groups text[]
)
RETURNS TABLE (asked text, client_id text, grp text, permits integer, permitted boolean, failure text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    started CONSTANT timestamptz := clock_timestamp();
    path CONSTANT text := pgsemaphore_data.path_of_functions();
    state CONSTANT text[] := pgsemaphore_data.session_state();
    call record;
    function text;
    statement text;
    answered boolean;
BEGIN
    FOR call IN
        SELECT 'limit' AS asked, NULL::text AS client_id, NULL::text AS grp, limit_function AS name, 'text' AS arguments, 'integer' AS result,
            'SELECT %s($1), NULL::pg_catalog.bool' AS statement
        WHERE limit_function IS NOT NULL
        UNION ALL
        SELECT 'group_limit', NULL, g.grp, group_limit_function, 'text, text', 'integer', 'SELECT %s($1, $2), NULL::pg_catalog.bool'
        FROM unnest(groups) AS g(grp)
        WHERE group_limit_function IS NOT NULL
        UNION ALL
        SELECT 'can_grant', c.client_id, c.grp, can_grant_function, 'text, text, text', 'boolean', 'SELECT NULL::pg_catalog.int4, %s($1, $3, $2)'
        FROM unnest(clients, client_groups) AS c(client_id, grp)
        WHERE can_grant_function IS NOT NULL
    LOOP
        asked := call.asked;
        client_id := call.client_id;
        grp := call.grp;
        permits := NULL;
        permitted := NULL;
        failure := NULL;
        answered := false;
        BEGIN
            IF clock_timestamp() - started > interval '250 milliseconds' THEN
                RAISE EXCEPTION 'the calls before it took all of the 250 ms';
            END IF;
            SELECT format('%s.%I', p.pronamespace::regnamespace, p.proname) INTO function
            FROM pg_proc AS p
            WHERE p.oid = pgsemaphore_data.function_of(call.name, call.arguments, call.result::regtype);
            IF function IS NULL THEN
                RAISE EXCEPTION 'there is no function %(%) returns %', call.name, call.arguments, call.result;
            END IF;
            statement := format(call.statement, function);
            -- From here to the end of the call nothing of ours looks up a name: no operator, no function, no type.
            PERFORM set_config('search_path', path, true);
            EXECUTE statement INTO permits, permitted USING key, call.grp, call.client_id;
            answered := true;
            -- Takes back all that the function did but for its answer: what it wrote, set, locked or became.
            RAISE EXCEPTION 'the call is over';
        EXCEPTION
            WHEN serialization_failure OR deadlock_detected THEN
                RAISE;
            WHEN query_canceled OR OTHERS THEN
                failure := CASE
                    WHEN NOT answered THEN SQLERRM
                    WHEN permits < 0 THEN format('%s returned %s, which is below 0', call.name, permits)
                    WHEN permits IS NULL AND call.asked = 'limit' THEN format('%s returned NULL', call.name)
                END;
                permits := CASE WHEN failure IS NULL THEN permits END;
        END;
        RETURN NEXT;
    END LOOP;
    PERFORM pg_advisory_unlock_all();
    IF state <> pgsemaphore_data.session_state() THEN
        asked := 'session';
        failure := 'functions of the policy left the session otherwise than they found it';
        RETURN NEXT;
    END IF;
END
$$;
COMMENT ON FUNCTION pgsemaphore_data.resolve IS 'Asks the functions of a policy, each call on its own: permits of a limit, NULL of a group limit for no ceiling, or a failure. Of a call nothing but its answer stays. A row ''session'' says that something did stay: no answer counts then.';

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA pgsemaphore_data FROM PUBLIC;
