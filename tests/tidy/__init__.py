"""The house style as functions: each takes a file (or a fact) and yields complaints.

tests/test_tidy.py runs them over the repository, and shows each of them a bad sample.
"""
