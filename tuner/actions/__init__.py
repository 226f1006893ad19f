"""What can be done with a search, one module each."""
