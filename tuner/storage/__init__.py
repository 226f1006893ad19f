"""The storage of a run: its folder on any file system, its lock, and the checks of its contents."""
