"""Turn the party thermometers of the American National Election Studies into records."""

from __future__ import annotations

from pathlib import Path

from examples import public_data

#: Column of the data set by party.
PARTIES = {"therm_dem": "Democratic Party", "therm_gop": "Republican Party"}


def prepare(folder: Path) -> list[public_data.Figure]:
    """Write one row an interview: a temperature of 0 (cold) to 100 (warm) for each party that was rated.

    The column `uid` is not unique; `rownames` numbers the interviews.
    """
    survey = public_data.load("stevedata", "anes_partytherms")
    answers = survey.set_index("rownames")[list(PARTIES)].rename(columns=PARTIES)
    return public_data.write_answers(folder, answers)


if __name__ == "__main__":
    public_data.main(__doc__, prepare)
