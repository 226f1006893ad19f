"""Whole training procedures; each also runs through plain Ray Tune; none imports `tuner`."""
