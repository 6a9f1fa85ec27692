-- Makes blank rows for groups, so that rounds update and never insert.
-- Parameters: key, groups.
INSERT INTO pgsemaphore_data.group_usage (key, grp)
SELECT $1, grp FROM unnest($2::text[]) AS grp
ON CONFLICT DO NOTHING
