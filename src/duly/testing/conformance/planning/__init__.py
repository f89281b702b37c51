"""Conformance: planning and the ledger."""
