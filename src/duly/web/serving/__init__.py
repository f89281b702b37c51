"""Serving HTTP: connections, limits and shutdown."""
