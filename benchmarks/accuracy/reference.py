"""What independent programs measured at the setting UU: a million users, 100 keys, one pair each.

Not read off a figure: means over repeats of runs made independently of this code, and for PCKV the standard deviation
of one repeat.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["PCKV_UU", "PRIVKV_UU"]

#: (mechanism, epsilon): mean and deviation of the squared error of frequencies, the same of means; 400 repeats.
PCKV_UU: Mapping[tuple[str, int], tuple[float, float, float, float]] = {
    ("pckv-ue", 1): (1.008e-5, 1.4e-6, 0.0758, 0.011),
    ("pckv-ue", 2): (1.637e-6, 2.4e-7, 0.0169, 0.0026),
    ("pckv-ue", 4): (1.651e-7, 2.2e-8, 0.00206, 0.00031),
    ("pckv-ue", 6): (3.018e-8, 4.3e-9, 0.000396, 5.7e-5),
    ("pckv-grr", 1): (9.87e-5, 1.5e-5, 0.564, 0.08),
    ("pckv-grr", 2): (1.036e-5, 1.5e-6, 0.1057, 0.017),
    ("pckv-grr", 4): (2.144e-7, 3.1e-8, 0.00259, 0.0004),
    ("pckv-grr", 6): (1.227e-8, 1.7e-9, 0.000201, 3e-5),
}
#: Method, as the figures call it: {epsilon: squared error of means}; 30 repeats.
PRIVKV_UU: Mapping[str, Mapping[int, float]] = {
    "PrivKVM, 1 round": {2: 0.314, 6: 0.23},
    "PrivKVM, 6 rounds": {2: 0.453, 6: 0.25},
    "PrivKVM, 5 of 6 rounds virtual": {2: 0.295, 6: 0.0708},
    "KVUE": {2: 0.34, 6: 0.0131},
}
