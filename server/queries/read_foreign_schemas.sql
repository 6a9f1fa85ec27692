-- Schemas of ours that belong to somebody whose code this login should not run: who owns a schema can put triggers and views
-- into it. Those of superusers, of this login and of roles that it is a member of are right; a superuser is of all roles.
-- No parameters.
SELECT n.nspname::text, owner.rolname::text
FROM pg_namespace AS n
JOIN pg_roles AS owner ON owner.oid = n.nspowner
JOIN pg_roles AS me ON me.rolname = current_user
WHERE n.nspname IN ('pgsemaphore', 'pgsemaphore_data')
    AND NOT owner.rolsuper
    AND owner.oid <> me.oid
    AND (me.rolsuper OR NOT pg_has_role(owner.oid, 'MEMBER'))
ORDER BY n.nspname
