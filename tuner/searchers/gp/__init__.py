"""A Gaussian process over the final value, which learns from trials that were stopped too."""
