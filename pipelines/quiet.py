"""Keeps one misleading line off the terminal. Importing this module, before Beam, is all there is to it.

Beam warns on import, through the root logger, that clients for a Google service are absent. They are not
needed here, and the line would be the first thing that every user of the command line reads.
"""

from __future__ import annotations

import logging

__all__: list[str] = []


def _is_relevant(record: logging.LogRecord) -> bool:
    # What an engine says while a job runs comes back in the error, in a paragraph.
    from_engine = record.module == "portable_runner"
    return not from_engine and "bigquery client libraries are not available" not in record.getMessage()


logging.getLogger().addFilter(_is_relevant)
