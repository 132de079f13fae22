"""What crosses a boundary: collection definition, reports, counts, estimates, manifest.

| name | what it describes | who needs it |
|---|---|---|
| `Definition`, `KeyDomain`, `ValueRange` | the TOML file that says what is collected | both sides |
| `FileHeader`, `report_schema` | files of reports, and what they say of themselves | both sides |
| `counts_schema` | files of counts | server |
| `estimates_schema` | files of estimates | server, analysts |
| `read_manifest`, `MANIFEST_NAME` | what a result is and how it came about | analysts |
| `Tally` | named counters that add up | both sides |

The client-side record schemas are in `ldp_beam.schemas.records` and deliberately not offered here, so that
server-side code never meets them by accident.
"""

from __future__ import annotations

from .collection import Definition
from .counts import counts_schema
from .estimates import estimates_schema
from .keys import KeyDomain
from .manifest import MANIFEST_NAME, read_manifest
from .reports import FileHeader, report_schema
from .tally import Tally
from .values import ValueRange

__all__ = [
    "MANIFEST_NAME",
    "Definition",
    "FileHeader",
    "KeyDomain",
    "Tally",
    "ValueRange",
    "counts_schema",
    "estimates_schema",
    "read_manifest",
    "report_schema",
]
