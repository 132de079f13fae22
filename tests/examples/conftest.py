"""The examples are scripts of the repository, not part of the installed package: put its top on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
