"""A batch of users in parts that fit the processor's cache, each with the random blocks that a user draws once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .data import Records
from .randomness import U64, BlockSource, Stream, bytes_of
from .workspace import scratch_bytes

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
        yield slice(start, start + part.n), part, seeds, _own_blocks(seeds, own_blocks, source), source


def _own_blocks(seeds: U64, count: int, source: BlockSource) -> U64:
    blocks, room = scratch_bytes("own_blocks", (count, *seeds.shape))
    for j in range(count):
        inputs = seeds if j == 0 else np.bitwise_xor(seeds, np.uint64(j), out=blocks[j])
        # behind a block lie the next one's inputs, which are written after
        source.fill_plane(0, bytes_of(inputs), room[blocks[:j].nbytes :])
    return blocks
