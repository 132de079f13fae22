"""Utility-optimised local differential privacy: its definition, uRR, uRAP, PUM, and their theory."""
