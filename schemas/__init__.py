"""What crosses a boundary: collection definition, records, reports, counts, estimates, manifest.

The client-side record schemas are in `ldp_beam.schemas.records` and deliberately not offered here, so that
server-side code never meets them by accident.
"""

from __future__ import annotations

from .collection import Definition
from .keys import KeyDomain
from .tally import Tally
from .values import ValueRange

__all__ = ["Definition", "KeyDomain", "Tally", "ValueRange"]
