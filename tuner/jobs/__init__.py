"""Searches as jobs of a cluster, through Ray's Jobs API: what travels, where to, and what runs there."""
