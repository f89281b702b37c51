"""One folder for each database: only what differs."""
