"""Fast paths: set statements for plain units, without rules of their own."""
