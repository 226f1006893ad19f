"""What a user may write: one frozen model a concept, and the YAML reader that knows lines and columns."""
