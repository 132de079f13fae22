"""All figures by name. To add one: a module with a tuple FIGURES, and its line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import beyond_padding, beyond_plan, pckv, privkv, uldp
from .figures import Figure

__all__ = ["ALL", "chosen"]

#: Every figure by name, in the order of the page.
ALL: Mapping[str, Figure] = {
    figure.name: figure for module in (pckv, privkv, uldp, beyond_padding, beyond_plan) for figure in module.FIGURES
}


def chosen(names: Sequence[str]) -> list[Figure]:
    """Return the figures that are called so, or belong to a family that is; all where no name is given.

    Raises:
        KeyError: A name is neither.
    """
    for name in names:
        if name not in ALL and name not in {figure.family for figure in ALL.values()}:
            raise KeyError(name)
    return [figure for figure in ALL.values() if not names or {figure.name, figure.family} & set(names)]
