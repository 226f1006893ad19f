"""BOHB: a model of densities at the highest fidelity that has enough results."""
