"""Stored values, frozen, and their state tables. No I/O."""
