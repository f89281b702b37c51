ALTER TABLE {p}resources ADD COLUMN runs_had integer;
