"""Mechanisms for numeric values: means of every coordinate, and percentiles of each key."""
