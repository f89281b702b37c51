"""The relational stores: one implementation on SQLAlchemy Core.

`schema` defines the tables, verbs are plain functions, and `dialects` holds only the differences
between databases.
"""
