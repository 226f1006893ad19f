"""The search itself, without Ray: its state, what it has used, its checkpoints, and its recovery."""
