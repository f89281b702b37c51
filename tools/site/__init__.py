"""The documents as a site."""
