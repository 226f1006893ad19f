"""A running search in a browser, and its figures for Prometheus."""
