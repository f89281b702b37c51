"""Tools to build the documentation: the generated parts of pages, and the site."""
