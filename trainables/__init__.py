"""Whole training procedures; each also runs through plain Ray Tune; of tuner they import `tuner.training` only."""
