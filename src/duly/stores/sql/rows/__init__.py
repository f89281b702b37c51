"""The mapping of stored values to table rows."""
