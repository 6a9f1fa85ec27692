-- What a login may make where it may create things: in each schema of PLACES functions, operators, types, a cast and
-- tables that are named like those which the product uses. A function that is called counts in the sequence public.caught,
-- which no rollback takes back, and fails.

SET search_path = pg_catalog;

CREATE SEQUENCE IF NOT EXISTS public.caught;
GRANT ALL ON SEQUENCE public.caught TO PUBLIC;

DO $shadows$
DECLARE
    names CONSTANT text[] := string_to_array(
        'array_agg array_to_string bool_or btrim clock_timestamp concat_ws current_database current_setting floor format '
        'format_type greatest has_function_privilege has_table_privilege hashtextextended interval jsonb_agg '
        'jsonb_array_elements jsonb_array_elements_text jsonb_each jsonb_object_agg jsonb_object_keys jsonb_set '
        'jsonb_typeof left length make_interval max md5 min now octet_length pg_advisory_lock pg_advisory_unlock '
        'pg_advisory_unlock_all pg_advisory_xact_lock pg_has_role pg_is_in_recovery pg_listening_channels '
        'pg_my_temp_schema pg_notify pg_postmaster_start_time replace scale set_config starts_with string_to_array '
        'substr sum timestamptz timezone to_char to_regclass to_regprocedure trim_scale extract', ' '
    );
    operators CONSTANT text[] := string_to_array('= <> < <= > >= + - * || -> ->> #>> ? ~~', ' ');
    types CONSTANT oid[] := ARRAY[
        'text', 'name', 'int4', 'int8', 'numeric', 'bool', 'jsonb', 'timestamptz', 'interval', 'text[]', 'int4[]', 'oid'
    ]::regtype[]::oid[];
    place text;
    shadow record;
    made integer := 0;
BEGIN
    FOREACH place IN ARRAY PLACES LOOP
        FOR shadow IN
            SELECT
                p.proname AS name, coalesce(string_agg(format_type(a.type, NULL), ', ' ORDER BY a.n), '') AS arguments,
                CASE WHEN p.proretset THEN 'SETOF ' ELSE '' END || format_type(p.prorettype, NULL) AS result
            FROM pg_proc AS p
            LEFT JOIN LATERAL unnest(p.proargtypes) WITH ORDINALITY AS a(type, n) ON true
            WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY (names)
            GROUP BY p.oid
            HAVING coalesce(bool_and(a.type NOT IN (SELECT t.oid FROM pg_type AS t WHERE t.typtype = 'p')), true)
                AND p.prorettype NOT IN (SELECT t.oid FROM pg_type AS t WHERE t.typtype = 'p' AND t.typname NOT IN ('void', 'record'))
            UNION ALL
            SELECT 'unnest', format_type(t.oid, NULL) || '[]', 'SETOF ' || format_type(t.oid, NULL)
            FROM pg_type AS t
            WHERE t.oid = ANY (types) AND t.typcategory <> 'A'
        LOOP
            EXECUTE format(
                'CREATE OR REPLACE FUNCTION %I.%I(%s) RETURNS %s LANGUAGE plpgsql AS $evil$ BEGIN
                     PERFORM pg_catalog.nextval(''public.caught''::pg_catalog.regclass);
                     RAISE EXCEPTION ''a shadow was called: %s'';
                 END $evil$',
                place, shadow.name, shadow.arguments, shadow.result, shadow.name
            );
        END LOOP;
        FOR shadow IN
            SELECT o.oprname AS name, format_type(o.oprleft, NULL) AS l, format_type(o.oprright, NULL) AS r, format_type(o.oprresult, NULL) AS result
            FROM pg_operator AS o
            WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprname = ANY (operators) AND o.oprleft = ANY (types) AND o.oprright = ANY (types)
        LOOP
            made := made + 1;
            EXECUTE format(
                'CREATE FUNCTION %1$I.shadow_%2$s(%3$s, %4$s) RETURNS %5$s LANGUAGE plpgsql AS $evil$ BEGIN
                     PERFORM pg_catalog.nextval(''public.caught''::pg_catalog.regclass);
                     RAISE EXCEPTION ''a shadow was called: an operator'';
                 END $evil$;
                 CREATE OPERATOR %1$I.%6$s (LEFTARG = %3$s, RIGHTARG = %4$s, FUNCTION = %1$I.shadow_%2$s)',
                place, made, shadow.l, shadow.r, shadow.result, shadow.name
            );
        END LOOP;
        EXECUTE format(
            'CREATE TYPE %1$I.odd AS ENUM (''odd'');
             CREATE FUNCTION %1$I.odd_text(%1$I.odd) RETURNS text LANGUAGE sql AS ''SELECT NULL'';
             CREATE CAST (%1$I.odd AS text) WITH FUNCTION %1$I.odd_text(%1$I.odd) AS IMPLICIT',
            place
        );
        FOR shadow IN
            SELECT t AS name
            FROM unnest(string_to_array('pg_settings pg_proc pg_roles pg_type pg_namespace pg_database pg_db_role_setting '
                'pg_prepared_statements pg_locks _sqlx_migrations semaphores slots clients policies group_limits holders', ' ')) AS t
        LOOP
            EXECUTE format('CREATE TABLE %I.%I (name text, setting text)', place, shadow.name);
        END LOOP;
        FOR shadow IN
            SELECT t AS name
            FROM unnest(string_to_array('text name int4 int8 numeric bool jsonb timestamptz interval oid regtype regnamespace record', ' ')) AS t
        LOOP
            EXECUTE format('CREATE DOMAIN %I.%I AS pg_catalog.text CHECK (pg_catalog.length(VALUE) < 0)', place, shadow.name);
        END LOOP;
    END LOOP;
END
$shadows$;
