"""Redaction: which names and values are secret, and texts without them."""
