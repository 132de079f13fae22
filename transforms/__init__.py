"""Beam transforms of a collection, for anyone's own pipeline.

The client half sees records and must run where the records may be seen; the server half sees reports and
cannot be handed anything else:

| half | transform | from → to |
|---|---|---|
| client | `ReadRecords` | files of records → canonical records |
| client | `PrepareRecords` | records of a pipeline → canonical records |
| client | `PerturbRecords` | canonical records → reports |
| client | `RecordsToReports` | records of a pipeline → reports |
| client | `WriteReports` | reports → files |
| server | `ReadReports` | files → reports |
| server | `CountReports` | reports → counts of key blocks |
| server | `GatherCounts` | counts of key blocks → counts |
| server | `EstimateCounts` | counts → estimates |
| server | `EstimateReports` | reports → estimates |
| server | `EstimatesToRows` | estimates → one row a key |
| server | `WriteCounts`, `WriteEstimates` | counts, estimates → files |
| server | `CountInWindows`, `PublishPanes`, `KeepSetAside` | unbounded reports → panes → files; what is too late |
| both | `CollectEstimates` | records of a pipeline → estimates |

What travels are `pyarrow.RecordBatch`es of thousands of users. `Collection` says what is collected and
`Secret` gives the clients their random bits.

    from ldp_beam.transforms import Collection, CollectEstimates, Secret

    estimates = records | CollectEstimates(Collection.load("fruit.toml"), Secret.new())

Names are imported when they are first used, so that a server which counts reports never loads the modules
that know what a record is.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..mechanisms import Secret
    from ..schemas.event_windows import Windows
    from ..schemas.records import Columns
    from .collect_estimates import CollectEstimates, RecordsToReports
    from .collection import Collection
    from .count import CountReports
    from .count_windows import CountInWindows
    from .estimate import EstimateCounts, GatherCounts, estimate_counts
    from .estimate_reports import EstimateReports, EstimatesToRows
    from .in_memory import PrepareRecords
    from .perturb import PerturbRecords
    from .publish import WriteCounts, WriteEstimates
    from .publish_panes import PaneWriter, PublishPanes
    from .records import ReadRecords
    from .report_files import ReadReports, WriteReports
    from .set_aside import KeepSetAside

__all__ = [
    "CollectEstimates",
    "Collection",
    "Columns",
    "CountInWindows",
    "CountReports",
    "EstimateCounts",
    "EstimateReports",
    "EstimatesToRows",
    "GatherCounts",
    "KeepSetAside",
    "PaneWriter",
    "PerturbRecords",
    "PrepareRecords",
    "PublishPanes",
    "ReadRecords",
    "ReadReports",
    "RecordsToReports",
    "Secret",
    "Windows",
    "WriteCounts",
    "WriteEstimates",
    "WriteReports",
    "estimate_counts",
]

#: Module of each name.
_HOMES: Final = {
    "CollectEstimates": ".collect_estimates",
    "Collection": ".collection",
    "Columns": "..schemas.records",
    "CountInWindows": ".count_windows",
    "CountReports": ".count",
    "EstimateCounts": ".estimate",
    "EstimateReports": ".estimate_reports",
    "EstimatesToRows": ".estimate_reports",
    "GatherCounts": ".estimate",
    "KeepSetAside": ".set_aside",
    "PaneWriter": ".publish_panes",
    "PerturbRecords": ".perturb",
    "PrepareRecords": ".in_memory",
    "PublishPanes": ".publish_panes",
    "ReadRecords": ".records",
    "ReadReports": ".report_files",
    "RecordsToReports": ".collect_estimates",
    "Secret": "..mechanisms",
    "Windows": "..schemas.event_windows",
    "WriteCounts": ".publish",
    "WriteEstimates": ".publish",
    "WriteReports": ".report_files",
    "estimate_counts": ".estimate",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
