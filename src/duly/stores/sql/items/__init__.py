"""How the kinds of items of the engine are kept in tables."""
