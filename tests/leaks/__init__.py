"""Plant secrets everywhere in a running application, and look for them in all its outputs."""
