"""Authentication of callers: shared secrets and signatures."""
