"""The verbs of the relational store, one thread hop each."""
