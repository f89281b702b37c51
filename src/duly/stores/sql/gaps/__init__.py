"""Searches that skip index entries of what has passed (ADR 0031)."""
