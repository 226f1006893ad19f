"""Optuna's samplers."""
