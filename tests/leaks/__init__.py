"""Secrets planted all over a running product, and every place where somebody could read them."""
