"""Frequency oracles of sets of keys, what they share, and their estimators."""
