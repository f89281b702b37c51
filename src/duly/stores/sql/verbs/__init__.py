"""The verbs of the relational store; each makes one thread hop."""
