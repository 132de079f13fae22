"""The report page in plain words: what was collected, what is promised, how sure one may be, what was left out.

Every function returns HTML; whatever comes from a file is escaped here and nowhere else.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from ..mechanisms import MECHANISMS
from .report_data import Result

__all__ = ["FLAGS", "REASONS", "cards", "certainty", "collected", "lead", "left_out", "manifest", "promise", "warnings"]

#: What each flag means to a reader.
FLAGS: Final[Mapping[str, str]] = {
    "few-holders": "The key is rare, or its share cannot be told from none. Read the share as “little or none”, and do "
    "not rely on the mean.",
    "clipped": "The raw estimate lay outside what is possible and was moved to the nearest possible figure. The "
    "unclipped one stands in the files.",
    "no-reports": "No report was counted, so nothing is known about the key.",
    "no-signs": "No report about the key carries a sign, so there is no mean.",
    "earlier-round": "The last round brought no mean for this key; the figure comes from an earlier round.",
}

#: What the tallies of the client side mean to a reader.
REASONS: Final[Mapping[str, str]] = {
    "rows_without_user": "rows that name no user (set aside)",
    "unreadable_rows": "rows that cannot be split into fields (set aside)",
    "null_key": "pairs with a value and no key (dropped)",
    "null_value": "pairs with a key and no value (dropped)",
    "not_a_number": "pairs whose value is not a number (dropped)",
    "outside_the_range": "pairs whose value lies outside the declared range (dropped)",
    "outside_the_domain": "pairs whose key is not part of the collection (no fault; dropped)",
    "clipped_values": "values moved to the nearest end of the range (kept)",
    "duplicate_pairs": "pairs merged with another pair of the same person and key",
    "unreadable_times": "rows without a readable time (taken as the earliest)",
    "malformed": "reports that no client of this collection can have made (not counted)",
}

_WHOLE_RECORD: Final = "epsilon-LDP for the whole record"


def _text(value: object) -> str:
    return html.escape(str(value))


def _rows(rows: Iterable[tuple[str, str]], *, heading: str, classes: str = "") -> str:
    body = "".join(f'<tr><th scope="row">{name}</th><td{classes}>{value}</td></tr>' for name, value in rows)
    return f'<table class="facts" aria-labelledby="{heading}"><tbody>{body}</tbody></table>'


def _people(n: int) -> str:
    return f"{n:,} {'report' if n == 1 else 'reports'}"


def lead(result: Result) -> str:
    """Return the sentence under the title."""
    made = result.manifest
    period = made["randomness"].get("period")
    parts = [_people(result.last.n), f"{len(result.keys):,} keys", made["mechanism"]["name"]]
    parts += [f"period {period}"] if period else []
    return _text(" · ".join([*parts, made["started"][:10]]))


def warnings(result: Result) -> str:
    """Return what a reader must know before anything else."""
    notes = list(result.manifest.get("warnings") or [])
    if not result.manifest["randomness"]["private"] and not any("seed" in note for note in notes):
        notes.append("The randomness came from a seed: this result is not private.")
    if not result.last.n:
        notes.append("No report was counted: there is nothing to estimate from.")
    return "\n".join(f'<p class="notice" role="note"><b>Note.</b> {_text(note)}</p>' for note in notes)


def cards(result: Result) -> str:
    """Return the figures at a glance."""
    flagged = int(np.count_nonzero(result.last.flags))
    figure = "frequency_se" if result.has_frequency else "mean_se"
    typical = _median(result.last.columns[figure])
    error = ("–", "typical standard error")
    if typical is not None and result.has_frequency:
        error = (f"± {100 * typical:.2g}", "typical standard error of a share, percentage points")
    elif typical is not None:
        error = (f"± {typical:.2g}", "typical standard error of a mean")
    shown = [
        (f"{result.last.n:,}", "reports counted"),
        (f"{len(result.keys):,}", "keys asked about"),
        (f"ε = {result.manifest['epsilon']['declared']}", "privacy budget of a report"),
        error,
        (f"{flagged:,}", f"{'key' if flagged == 1 else 'keys'} with a flag"),
    ]
    if len(result.frames) > 1:
        shown.insert(1, (f"{len(result.frames):,}", "windows; the last is shown"))
    return "\n".join(f"<li><b>{_text(figure)}</b><span>{_text(name)}</span></li>" for figure, name in shown)


def _median(values: Any) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def collected(result: Result) -> str:
    """Say what people were asked."""
    made = result.manifest["collection"]
    values = made.get("values") or {}
    name = _text(made.get("name", ""))
    if not result.has_frequency:
        return (
            f"<p>The collection <b>{name}</b> asks about {len(result.keys):,} keys; each comes with a value. For each "
            "key this page gives the estimated <b>mean</b> value, in the units of the data.</p>"
        )
    if not result.has_mean:
        return (
            f"<p>The collection <b>{name}</b> asks about {len(result.keys):,} keys. For each key this page gives the "
            "estimated <b>frequency</b>: the share of all people, of those who took part, whose record holds it.</p>"
        )
    span = values.get("range")
    scale = f", a number from {_text(span[0])} to {_text(span[1])}" if span else ""
    return (
        f"<p>The collection <b>{name}</b> asks about {len(result.keys):,} keys. A person may hold any of them; with "
        f"each key that she holds comes a value{scale}.</p><p>For each key this page gives the estimated "
        "<b>frequency</b>, the share of people who hold it, and the estimated <b>mean</b>, the average value among "
        "those who do, in the units of the data.</p>"
    )


def promise(result: Result) -> str:
    """Say what the guarantee is, and what it is not."""
    made = result.manifest
    entry = MECHANISMS.get(made["mechanism"]["name"])
    guarantee = entry.guarantee if entry else _WHOLE_RECORD
    epsilon = float(made["epsilon"]["declared"])
    said = [_what_epsilon_says(guarantee, epsilon, made["epsilon"])]
    if not made["randomness"]["private"]:
        said.append(
            "<p><b>None of this holds here:</b> the random numbers came from a seed, and whoever knows it can undo the "
            "perturbation. A real collection runs without <code>--seed</code>.</p>"
        )
    said.append(
        "<p>Not hidden: that somebody took part, and what is true of people in general. Who takes part again spends "
        "the budget again.</p>"
    )
    return "\n".join(said)


def _what_epsilon_says(guarantee: str, epsilon: float, budget: Mapping[str, Any]) -> str:
    exact = budget.get("exact")
    checked = (
        f" Computed from the integers that decide each random choice, the exact loss is {float(exact):.9g}."
        if exact
        else ""
    )
    if guarantee != _WHOLE_RECORD:
        unlisted = ""
        if "ULDP" in guarantee:
            unlisted = (
                "<p><b>There is no promise for what is not listed as sensitive:</b> whoever holds nothing sensitive "
                "may reveal one of her keys, and with it that she holds nothing sensitive.</p>"
            )
        return (
            f"<p>Every person's own side changed the record at random before anything left it. The guarantee is: "
            f"<b>{_text(guarantee)}</b>, with ε = {_text(budget['declared'])}.{checked}</p>{unlisted}"
        )
    return (
        "<p>Every person's own side changed the record at random before anything left it, and sent one report. No "
        f"report is more than <b>{_ratio(epsilon)} times</b> (e<sup>{_text(budget['declared'])}</sup>) likelier from "
        "this person's record than from any other record, whatever else is known about her: which keys she holds, "
        f"how many, and every value.{checked}</p>"
    )


def _ratio(epsilon: float) -> str:
    ratio = math.exp(epsilon)
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def certainty(result: Result) -> str:
    """Say how to read the intervals and the flags."""
    said = [
        "<p>The figures are estimates from noisy reports. A <b>95 % interval</b> holds the true figure in about 95 of "
        "100 collections; of many intervals on one page, some miss. Two keys whose intervals overlap widely may well "
        "be in the other order.</p>"
    ]
    if not result.flag_names:
        return said[0] + "<p>No key carries a flag.</p>"
    listed = "".join(
        f'<dt><span class="flag">{_text(name)}</span> {result.flagged(name):,} '
        f"{'key' if result.flagged(name) == 1 else 'keys'}</dt><dd>{FLAGS.get(name, 'See the documentation.')}</dd>"
        for name in result.flag_names
    )
    return f"{said[0]}<p>A flag says why a figure should not be trusted:</p><dl>{listed}</dl>"


def left_out(result: Result, *, public: bool) -> str:
    """List rejects by reason."""
    made = result.manifest
    rows: dict[str, int] = {}
    records = made.get("records")
    if records and not public:
        rows |= dict(records.get("rejected") or {})
        rows |= {name: records[name] for name in REASONS if records.get(name) and name not in rows}
    malformed = (made.get("reports") or {}).get("malformed", 0)
    if malformed:
        rows["malformed"] = malformed
    said = []
    if rows:
        said.append(
            _rows(
                ((REASONS.get(k, _text(k)), f"{v:,}") for k, v in rows.items()),
                heading="left-out",
                classes=' class="number"',
            )
        )
    else:
        said.append("<p>Nothing that this side can see was left out.</p>" if not public else "<p>No report.</p>")
    said.append(_side_of_the_records(records, public))
    return "\n".join(said)


def _side_of_the_records(records: Mapping[str, Any] | None, public: bool) -> str:
    if public:
        return '<p class="note">Tallies of the raw data are left out of this page, which is meant for the public.</p>'
    if not records:
        return '<p class="note">The server sees reports only; what clients rejected stands in their own manifest.</p>'
    read = f"{records.get('rows_read', 0):,} rows were read, {records.get('users', 0):,} people took part. "
    return (
        f'<p class="note">{read}These are exact counts of the raw data, which the guarantee does not cover: keep them '
        "with the records. A page made with <code>--public</code> leaves them out.</p>"
    )


def manifest(result: Result, *, public: bool) -> str:
    """Return the facts of the run, and the whole manifest."""
    made = dict(result.manifest)
    if public:
        made["records"] = None
    parameters = made["mechanism"].get("parameters") or {}
    facts = [
        ("Made by", f"<code>ldp-beam {_text(made['verb'])}</code> {_text(made['versions'].get('ldp-beam', ''))}"),
        ("Started", _text(made["started"])),
        ("Took", f"{float(made['seconds']):,.1f} seconds on {_text(made['engine'].get('name', ''))}"),
        ("Mechanism", _text(made["mechanism"]["name"])),
        ("Parameters", _text(", ".join(f"{k} = {_short(v)}" for k, v in parameters.items()))),
        ("Randomness", _text(f"{made['randomness']['source']}: {made['randomness']['statement']}")),
        ("Fingerprint", f"<code>{_text(made['fingerprint'])}</code>"),
    ]
    whole = _text(json.dumps(made, indent=2, ensure_ascii=False))
    details = f'<summary>The whole manifest</summary><pre tabindex="0">{whole}</pre>'
    return f"{_rows(facts, heading='manifest')}<details>{details}</details>"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
