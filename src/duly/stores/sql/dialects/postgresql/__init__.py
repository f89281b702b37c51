"""The PostgreSQL dialect."""
