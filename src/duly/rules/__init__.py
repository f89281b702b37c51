"""Rules of scheduling: pure decisions over stored values, independent of the database."""
