"""Use cases, each implemented once as a function of a transaction (`engine.transaction`)."""
