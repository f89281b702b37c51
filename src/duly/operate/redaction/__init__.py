"""Redaction: detect secret names and values, and remove them from texts."""
