"""The joint EM estimate of categorical reports: from the reports themselves, which tell more than their counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import InputError
from ..mechanisms import Reports
from .batches import batch_to_reports
from .collection import Collection
from .count_distinct import distinct_reports
from .report_files import ReportSlice, read_reports

__all__ = ["joint_frequencies", "require_joint"]

#: Reports times keys that are taken into memory, eight bytes each.
_CELLS: Final = 1 << 27


@runtime_checkable
class _JointShares(Protocol):
    def joint_shares(self, reports: Reports) -> npt.NDArray[np.float64]: ...


def require_joint(collection: Collection) -> None:
    """Refuse a collection whose reports have no joint EM estimate.

    Raises:
        InputError: It asks about values, sets of items, several attributes or several answers, or in rounds.
    """
    mechanism = collection.mechanism
    if not isinstance(mechanism, _JointShares) or getattr(mechanism, "scale", 1) != 1:
        raise InputError(
            f"--joint-em: {mechanism.name} of this collection has no joint EM estimate. There is one for single "
            "symbols: rr, grr, sue, oue, olh, subset-selection, shist, hadamard, urap, without [attributes] or reports."
        )


def joint_frequencies(collection: Collection, slices: Iterable[ReportSlice]) -> npt.NDArray[np.float64]:
    """Return the shares under which all readable, valid and distinct reports are most likely, float64 (d,).

    The reports are taken into memory at once.

    Raises:
        InputError: There are too many of them.
    """
    require_joint(collection)
    mechanism = collection.mechanism
    batches: list[pa.RecordBatch] = []
    rows = 0
    for part in slices:
        for batch in read_reports(collection, part):
            rows += batch.num_rows
            if rows * mechanism.keys > _CELLS:
                raise InputError(
                    f"--joint-em takes all reports into memory: {_CELLS // mechanism.keys:,} at most with "
                    f"{mechanism.keys:,} keys, and there are more. Leave the option out, or give a part of the files."
                )
            batches.append(batch)
    if not batches:
        return np.full(mechanism.keys, np.nan)
    together = pa.concat_batches(batches)
    if collection.definition.report_ids:
        together, _ = distinct_reports(mechanism, together)
    reports = batch_to_reports(together, mechanism.layout())
    assert isinstance(mechanism, _JointShares)  # `require_joint` looked
    return mechanism.joint_shares(reports.select(mechanism.valid(reports)))
