"""Conformance: the schedule index."""
