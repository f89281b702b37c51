"""Use cases of HTTP hand-over."""
