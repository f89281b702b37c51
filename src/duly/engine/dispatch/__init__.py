"""Use cases of hand-over by HTTP."""
