"""Searches that skip dead index entries (ADR 0031)."""
