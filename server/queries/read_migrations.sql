-- Versions of the migrations that were applied, the latest first.
-- No parameters.
SELECT version FROM pgsemaphore_data._sqlx_migrations WHERE success ORDER BY version DESC
