"""Named integer counters that add up, the form in which row counts travel beside the data.

Engine metrics are not exact everywhere, so what a manifest says of rows, users and reports is counted
here and carried through the pipeline like any other data. Client and server stages both use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

__all__ = [
    "CLIPPED_VALUES",
    "DUPLICATE_PAIRS",
    "EMPTY_ROWS",
    "INVALID_REASONS",
    "KEPT_PAIRS",
    "NOT_A_NUMBER",
    "NULL_KEY",
    "NULL_VALUE",
    "OUTSIDE_DOMAIN",
    "OUTSIDE_RANGE",
    "PAIRS_READ",
    "REJECTED_ROWS",
    "REPORTS_COUNTED",
    "REPORTS_DUPLICATE",
    "REPORTS_MALFORMED",
    "REPORTS_UNREADABLE",
    "ROWS_READ",
    "ROWS_WITHOUT_USER",
    "SENSITIVE_ROWS_READ",
    "SENSITIVE_ROWS_UNUSABLE",
    "SET_ASIDE_REASONS",
    "UNKNOWN_TAGS",
    "UNREADABLE_ROWS",
    "UNREADABLE_TIMES",
    "USERS",
    "Tally",
]

#: Rows found in the input, the unreadable ones included.
ROWS_READ = "rows_read"
#: Rows set aside because they name no user.
ROWS_WITHOUT_USER = "rows_without_user"
#: Rows set aside because they cannot be split into fields.
UNREADABLE_ROWS = "unreadable_rows"
#: Rows that are set aside or hold at least one invalid pair: what a limit on rejects is measured on.
REJECTED_ROWS = "rejected_rows"
#: Users who take part.
USERS = "users"
#: Rows of a user that declare no pair.
EMPTY_ROWS = "empty_rows"
#: Pairs found in rows that name a user.
PAIRS_READ = "pairs_read"
#: Pairs that are left, duplicates merged.
KEPT_PAIRS = "pairs_kept"
#: Pairs that were merged into another pair of the same user and key.
DUPLICATE_PAIRS = "duplicate_pairs"
#: Pairs dropped because their key is not in the domain; this is no fault of the pair.
OUTSIDE_DOMAIN = "outside_the_domain"
#: Pairs dropped because they have a value and no key.
NULL_KEY = "null_key"
#: Pairs dropped because they have a key and no value.
NULL_VALUE = "null_value"
#: Pairs dropped because their value is NaN, infinite, or text that is no number.
NOT_A_NUMBER = "not_a_number"
#: Pairs dropped because their value lies outside the declared range (rule "drop").
OUTSIDE_RANGE = "outside_the_range"
#: Pairs kept with a value moved to the nearest end of the range (rule "clip").
CLIPPED_VALUES = "clipped_values"
#: Pairs kept although their tag is none of the collection's: sensitive, and told of by a random symbol.
UNKNOWN_TAGS = "unknown_tags"
#: Rows of a table of sensitive keys.
SENSITIVE_ROWS_READ = "sensitive_rows_read"
#: Of these, rows without a user, or whose key is missing or not in the domain.
SENSITIVE_ROWS_UNUSABLE = "sensitive_rows_unusable"
#: Rows whose time is missing or unreadable where times decide; they count as the earliest.
UNREADABLE_TIMES = "unreadable_times"
#: Reports that were counted.
REPORTS_COUNTED = "reports_counted"
#: Reports set aside on the server because one with the same id is counted already.
REPORTS_DUPLICATE = "reports_duplicate"
#: Reports set aside on the server because no client of the collection can have made them.
REPORTS_MALFORMED = "reports_malformed"
#: Reports lost on the server because the rest of their file cannot be read.
REPORTS_UNREADABLE = "reports_unreadable"

#: Reasons for which a pair is invalid.
INVALID_REASONS = (NULL_KEY, NULL_VALUE, NOT_A_NUMBER, OUTSIDE_RANGE)
#: Reasons for which a whole row is set aside.
SET_ASIDE_REASONS = (ROWS_WITHOUT_USER, UNREADABLE_ROWS)


class Tally(Mapping[str, int]):
    """An immutable mapping of counter names to integers; counters that are not there are 0.

    Tallies form a commutative monoid under `+`, and the builtin `sum` works on them. Any name is allowed;
    the constants of this module are those that the stages of a run share.
    """

    __slots__ = ("_counts",)

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        """Copy `counts`; zeros are left out, so that equal tallies compare equal."""
        self._counts = {name: int(count) for name, count in (counts or {}).items() if count}

    def __getitem__(self, name: str) -> int:
        return self._counts.get(name, 0)

    def __contains__(self, name: object) -> bool:
        return name in self._counts

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._counts))

    def __len__(self) -> int:
        return len(self._counts)

    def __add__(self, other: Tally | int) -> Tally:
        if isinstance(other, int):
            if other:
                return NotImplemented
            return self
        names = self._counts.keys() | other._counts.keys()
        return Tally({name: self[name] + other[name] for name in names})

    __radd__ = __add__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and self._counts == other._counts

    def __hash__(self) -> int:
        return hash(frozenset(self._counts.items()))

    def __repr__(self) -> str:
        return f"Tally({dict(self)!r})"

    def __reduce__(self) -> tuple[type[Tally], tuple[dict[str, int]]]:
        return Tally, (self._counts,)
