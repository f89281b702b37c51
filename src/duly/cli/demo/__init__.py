"""`duly demo`: the whole product on a temporary SQLite file."""
