"""The verbs of the memory store."""
