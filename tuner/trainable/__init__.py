"""Training code that was not written for tuner: plain scripts and Optuna objectives."""
