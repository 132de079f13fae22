"""PCKV: the mechanism, its budget, sampling, estimators, theory, and exact simulation of its counts."""
