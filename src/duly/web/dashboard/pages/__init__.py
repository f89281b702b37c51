"""One module for each group of pages."""
