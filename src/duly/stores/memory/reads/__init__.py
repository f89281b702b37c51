"""Bounded reads of the memory store."""
