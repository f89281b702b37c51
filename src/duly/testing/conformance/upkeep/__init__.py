"""Conformance: retention, erasure and zone rules."""
