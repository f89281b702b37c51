-- A move writes an entry in every index of the row. A unique index looks at all entries with an equal
-- key, and while a snapshot is held none of them can be removed. With the version, which every move
-- counts up, no two are equal. That a number has one row follows from the key of the rules.
ALTER TABLE {p}schedule_index
    DROP CONSTRAINT {i}schedule_index_pkey,
    ADD CONSTRAINT {i}schedule_index_pkey PRIMARY KEY (row_id, version);
