"""What makes the documents: the parts of pages that come from the code, and the site."""
