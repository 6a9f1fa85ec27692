-- Settings of this session, in their base units.
-- No parameters.
SELECT s.name, s.setting FROM pg_settings AS s ORDER BY s.name
