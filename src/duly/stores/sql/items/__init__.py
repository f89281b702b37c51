"""The mapping of the engine's kinds of items to tables."""
