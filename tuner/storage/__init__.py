"""Where a run lies: its folder on any file system, its lock, the checks of what it holds."""
