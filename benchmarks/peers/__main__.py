"""Entry point of `python -m benchmarks.peers`."""

import sys

from benchmarks.peers.compare import main

sys.exit(main())
