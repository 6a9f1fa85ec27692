-- Holds every semaphore for this transaction: no round runs meanwhile.
-- No parameters.
LOCK TABLE pgsemaphore_data.semaphores IN ACCESS EXCLUSIVE MODE
