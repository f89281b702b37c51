"""`duly demo`: the whole product on a SQLite file."""
