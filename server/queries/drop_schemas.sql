-- Drops everything there is of pgsemaphore in this database, the list of migrations too.
-- No parameters.
DROP SCHEMA IF EXISTS pgsemaphore, pgsemaphore_data CASCADE
