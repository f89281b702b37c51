"""The rules of scheduling: pure decisions over stored values. They know no database."""
