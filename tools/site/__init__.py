"""Build the documents as a site."""
