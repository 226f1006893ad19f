"""The experiment file: what a user may write, and the reader that knows its lines and columns."""
