-- Policies in the order of their patterns, bytewise.
-- $1 patterns after this one, $2 how many at most
SELECT d.policy
FROM (
    SELECT p.pattern
    FROM pgsemaphore.policies AS p
    WHERE p.pattern > $1 COLLATE "C"
    ORDER BY p.pattern
    LIMIT $2
) AS page
CROSS JOIN LATERAL pgsemaphore_data.policy_document(page.pattern) AS d
ORDER BY page.pattern
