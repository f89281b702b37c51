-- Which actions a worker has code for; NULL where an earlier release registered it.
ALTER TABLE {p}workers ADD COLUMN actions TEXT;
