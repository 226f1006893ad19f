"""What a team shares: which search gets how much of one cluster."""
