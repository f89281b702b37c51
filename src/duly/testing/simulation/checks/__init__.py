"""Checks of the record of a simulation."""
