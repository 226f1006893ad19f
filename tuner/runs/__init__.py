"""The run folder: what a search found, on disk and in memory."""
