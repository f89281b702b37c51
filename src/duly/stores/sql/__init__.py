"""The relational stores: one implementation on SQLAlchemy Core.

Tables stand in `schema`, verbs are plain functions in one module per station, and a dialect file
holds what differs between databases and nothing else.
"""
