"""How stored values are kept in tables."""
