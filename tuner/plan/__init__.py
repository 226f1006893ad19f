"""From what the user wrote and what the cluster has to a checked `Plan`."""
