"""Population based training: trials that take over the weights of better ones."""
