"""Conformance: hand-over by HTTP."""
