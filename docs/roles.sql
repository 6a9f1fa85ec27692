-- The roles of pgsemaphore, for the database that this runs in. `pgsemaphore roles create` runs exactly this; so does
-- `psql --single-transaction --file roles.sql`. Whoever runs it owns the schemas and may create roles. Run it again
-- after each `pgsemaphore migrate`: it is safe to repeat, and gives the roles what is new.
--
--   pgsemaphore_reader   sees the views, and nothing else; so does PostgreSQL's own pg_monitor
--   pgsemaphore_admin    also calls the functions, and runs the commands policy, usage, explain and client
--   pgsemaphore_holder   the server runs as this, `pgsemaphore serve`; it reads and writes the tables
--
-- None of them logs in. Make logins members of them:
--
--   CREATE ROLE holder LOGIN PASSWORD '...' IN ROLE pgsemaphore_holder;
--
-- `pgsemaphore migrate`, `roles create` and `uninstall` belong to the owner of the schemas, which is none of these roles.

-- Nothing that somebody made in another schema is called in place of what is meant.
SET search_path = pg_catalog, pg_temp;

DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['pgsemaphore_reader', 'pgsemaphore_admin', 'pgsemaphore_holder'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role);
        END IF;
    END LOOP;
END
$$;

-- Readers: views. The views call four functions that answer no more than the views show; without USAGE of their
-- schema nobody can name them.
GRANT USAGE ON SCHEMA pgsemaphore TO pgsemaphore_reader, pg_monitor;
GRANT SELECT ON ALL TABLES IN SCHEMA pgsemaphore TO pgsemaphore_reader, pg_monitor;
GRANT EXECUTE ON FUNCTION pgsemaphore_data.policy_for, pgsemaphore_data.policy_extra, pgsemaphore_data.is_alive,
    pgsemaphore_data.this_database
TO pgsemaphore_reader, pg_monitor;

-- Admins: the functions of schema pgsemaphore, which run with their owner's rights, and what the commands read.
GRANT pgsemaphore_reader TO pgsemaphore_admin;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgsemaphore TO pgsemaphore_admin;
GRANT USAGE ON SCHEMA pgsemaphore_data TO pgsemaphore_admin;
GRANT SELECT ON ALL TABLES IN SCHEMA pgsemaphore_data TO pgsemaphore_admin;
GRANT EXECUTE ON FUNCTION pgsemaphore_data.policy_document, pgsemaphore_data.policy_defaults, pgsemaphore_data.apply_policy
TO pgsemaphore_admin;

-- Holders: rows, not their shape, and not the list of migrations.
GRANT pgsemaphore_reader TO pgsemaphore_holder;
GRANT USAGE ON SCHEMA pgsemaphore_data TO pgsemaphore_holder;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pgsemaphore_data TO pgsemaphore_holder;
REVOKE INSERT, UPDATE, DELETE ON pgsemaphore_data._sqlx_migrations FROM pgsemaphore_holder;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgsemaphore TO pgsemaphore_holder;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgsemaphore_data TO pgsemaphore_holder;

-- What a holder asks for in each session it opens itself. A login takes settings from its own role only, not from those
-- that it is a member of: behind a pooler give them to the login too, or log in as pgsemaphore_holder.
ALTER ROLE pgsemaphore_holder SET search_path = pg_catalog, pg_temp;
ALTER ROLE pgsemaphore_holder SET default_transaction_isolation = 'read committed';
ALTER ROLE pgsemaphore_holder SET default_transaction_deferrable = off;
ALTER ROLE pgsemaphore_holder SET row_security = on;
ALTER ROLE pgsemaphore_holder SET standard_conforming_strings = on;
ALTER ROLE pgsemaphore_holder SET transform_null_equals = off;
ALTER ROLE pgsemaphore_holder SET array_nulls = on;
ALTER ROLE pgsemaphore_holder SET exit_on_error = off;
ALTER ROLE pgsemaphore_holder SET client_min_messages = notice;
ALTER ROLE pgsemaphore_holder SET bytea_output = hex;
ALTER ROLE pgsemaphore_holder SET DateStyle = 'ISO, MDY';
ALTER ROLE pgsemaphore_holder SET IntervalStyle = postgres;
ALTER ROLE pgsemaphore_holder SET TimeZone = 'UTC';
ALTER ROLE pgsemaphore_holder SET enable_seqscan = off;
ALTER ROLE pgsemaphore_holder SET enable_hashjoin = off;
ALTER ROLE pgsemaphore_holder SET enable_mergejoin = off;
ALTER ROLE pgsemaphore_holder SET enable_nestloop = on;
ALTER ROLE pgsemaphore_holder SET enable_indexscan = on;
ALTER ROLE pgsemaphore_holder SET enable_indexonlyscan = on;
ALTER ROLE pgsemaphore_holder SET enable_bitmapscan = on;
ALTER ROLE pgsemaphore_holder SET enable_sort = on;
ALTER ROLE pgsemaphore_holder SET enable_hashagg = on;
ALTER ROLE pgsemaphore_holder SET enable_material = on;
ALTER ROLE pgsemaphore_holder SET work_mem = 4096;
ALTER ROLE pgsemaphore_holder SET jit = off;
ALTER ROLE pgsemaphore_holder SET plan_cache_mode = force_generic_plan;
ALTER ROLE pgsemaphore_holder SET lock_timeout = 2000;
ALTER ROLE pgsemaphore_holder SET statement_timeout = 20000;
ALTER ROLE pgsemaphore_holder SET idle_in_transaction_session_timeout = 3000;
ALTER ROLE pgsemaphore_holder SET idle_session_timeout = 0;
