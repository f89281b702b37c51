"""The differences between databases, one folder for each."""
