"""Asynchronous successive halving."""
