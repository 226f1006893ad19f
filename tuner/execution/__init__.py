"""The seam to Ray Tune: our searchers, trials and bookkeeping in the shapes that Ray expects."""
