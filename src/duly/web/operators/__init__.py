"""Operators: accounts, sign-in and sessions."""
