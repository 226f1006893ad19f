"""Progress of a search: lines, a live view of the terminal, a notebook."""
