"""Bounded reads for pages."""
