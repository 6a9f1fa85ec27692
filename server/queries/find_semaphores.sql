-- Whether there is a table of semaphores.
-- No parameters.
SELECT to_regclass('pgsemaphore_data.semaphores') IS NOT NULL
