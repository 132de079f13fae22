"""Turn the General Social Survey's seven questions on abortion into records."""

from __future__ import annotations

from pathlib import Path

from examples import public_data

#: What each question asks, in our words: may a woman have a legal abortion ...
QUESTIONS = {
    "abany": "whatever her reason is",
    "abdefect": "if the unborn child probably has a serious defect",
    "abnomore": "if she is married and wants no more children",
    "abhlth": "if the pregnancy seriously endangers her own health",
    "abpoor": "if her family is too poor for another child",
    "abrape": "if she became pregnant by rape",
    "absingle": "if she is single and does not want to marry the father",
}


def prepare(folder: Path) -> list[public_data.Figure]:
    """Write one row a person: yes is +1, no is -1, and a question without an answer is not held.

    The column `id` repeats from one survey year to another; `rownames` numbers the people.
    """
    survey = public_data.load("stevedata", "gss_abortion")
    answers = survey.set_index("rownames")[list(QUESTIONS)] * 2.0 - 1.0
    return public_data.write_answers(folder, answers)


if __name__ == "__main__":
    public_data.main(__doc__, prepare)
