ALTER TABLE {p}schema ADD COLUMN tz_version TEXT;
