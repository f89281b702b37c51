"""Fast paths: set statements for plain units; they contain no rules."""
