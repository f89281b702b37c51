"""Checks of a simulated run."""
