"""Verbs of the memory store."""
