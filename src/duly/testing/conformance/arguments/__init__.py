"""Conformance: refusal of invalid arguments."""
