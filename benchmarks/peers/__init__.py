"""Other packages for the same tasks, side by side with this one in the same run: `python -m benchmarks.peers`."""

from benchmarks.peers.compare import draw, main

__all__ = ["draw", "main"]
