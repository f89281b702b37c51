"""Conformance: schedules and their edits."""
