"""Refusals of arguments that do not fit."""
