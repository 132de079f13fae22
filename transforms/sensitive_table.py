"""A table of sensitive keys, (user_id, key, tag): what is sensitive to whom, joined to the records on the client side.

Its rows travel with the rows of the records, marked, so that both meet in the bucket of their user; see `pair_rows`.
"""

from __future__ import annotations

import numpy as np

from ..errors import InputError
from ..mechanisms import UserDigests
from ..schemas import tally as names
from ..schemas.keys import MISSING, KeyDomain
from ..schemas.tally import Tally
from .inputs import SENSITIVE_COLUMNS
from .pair_rows import TABLE_TAG, PairRows
from .pair_rules import UNKNOWN_TAG, tags_of
from .raw_columns import digest_users, null_mask
from .record_files import RawBatch

__all__ = ["prepare_table"]


def prepare_table(
    raw: RawBatch, keys: KeyDomain, tags: KeyDomain, digests: UserDigests, *, strict: bool
) -> tuple[PairRows, Tally]:
    """Turn rows of the table into marked rows, without those that speak of no user or of no key of the collection.

    A row whose tag is missing or unknown says that the key is sensitive all the same.

    Args:
        raw: rows of the table.
        keys: the key domain.
        tags: names of the tags.
        digests: the keyed hash of user ids.
        strict: refuse the file at the first row without a user or key, or with an unknown tag.

    Raises:
        InputError: A column has a wrong type; in strict mode, the first faulty row.
    """
    where = f"{raw.path}: column {{!r}}"
    found = keys.index(raw.keys, where=where.format(SENSITIVE_COLUMNS.key))
    tag = tags_of(raw, tags, SENSITIVE_COLUMNS)
    without_user = null_mask(raw.users)
    nobody = np.zeros(raw.n, dtype=np.bool_) if without_user is None else without_user
    usable = (found >= 0) & ~nobody
    faulty = nobody | (found == MISSING) | (tag == UNKNOWN_TAG)
    if strict and faulty.any():
        raise InputError(
            f"{raw.path}, row {raw.row_numbers()[faulty][0]}: a row of the table of sensitive keys needs a user, a "
            "key, and one of the collection's tags or none. Correct the row, or run without --strict."
        )
    tag[tag == 0] = UNKNOWN_TAG
    counts = {
        names.SENSITIVE_ROWS_READ: raw.n + len(raw.unreadable),
        names.SENSITIVE_ROWS_UNUSABLE: raw.n + len(raw.unreadable) - int(np.count_nonzero(usable)),
    }
    users = digest_users(raw.users.filter(usable), digests, where=where.format(SENSITIVE_COLUMNS.user))
    rows = PairRows(digests=users, keys=found[usable], tags=tag[usable] + np.int16(TABLE_TAG))
    return rows, Tally(counts)
