"""A batch of users in parts that fit the processor's cache, each with the random blocks that a user draws once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .data import Records
from .randomness import U64, BlockSource, Stream
from .workspace import scratch

__all__ = ["chunks"]


def chunks(
    records: Records, stream: Stream, *, size: int, own_blocks: int
) -> Iterator[tuple[slice, Records, U64, U64, BlockSource]]:
    """Yield rows, records, seeds, own blocks and block function of parts of the batch.

    Args:
        records: canonical records.
        stream: random bits of the collection.
        size: users of a part.
        own_blocks: blocks that each user draws once, numbers 0 to own_blocks - 1.

    Returns:
        Seeds are uint64 (n, 2) and own blocks uint64 (own_blocks, n, 2), in memory that the next part uses again.
    """
    source = stream.source()
    for start in range(0, records.n, size):
        part = records.slice(start, min(start + size, records.n))
        seeds = stream.seeds(part)
        blocks = scratch("own_blocks", (own_blocks, *seeds.shape))
        for j in range(own_blocks):
            np.bitwise_xor(seeds, np.uint64(j), out=blocks[j])
        source.fill(blocks, blocks)
        yield slice(start, start + part.n), part, seeds, blocks, source
