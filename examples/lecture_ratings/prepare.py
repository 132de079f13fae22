"""Turn the lecture evaluations of ETH Zurich's students into records."""

from __future__ import annotations

from pathlib import Path

from examples import public_data


def prepare(folder: Path) -> list[public_data.Figure]:
    """Write one row a rating: student, department of the lecture, 1 (poor) to 5 (very good)."""
    evaluations = public_data.load("lme4", "InstEval")
    ratings = evaluations.rename(columns={"s": "user_id", "dept": "key", "y": "value"})
    return public_data.write_ratings(folder, ratings[["user_id", "key", "value"]])


if __name__ == "__main__":
    public_data.main(__doc__, prepare)
