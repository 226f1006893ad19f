"""The tracking backends, one file each."""
