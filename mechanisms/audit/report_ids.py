"""The audit of report ids: what a report's opaque id tells of the record behind it.

An id is one block of the pseudo-random function under a key of its own. The record enters it through the seed, which is
the input of the block: with ideal random bits the id is uniform for every seed and independent of every other block.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..randomness import U64, BlockSource, Secret, Stream

__all__ = ["id_violations"]

#: Seeds as different as seeds can be, and words that an ideal block function might return for them.
_SEEDS: Final = np.array([[0, 0], [2**64 - 1, 2**64 - 1], [1, 2**63], [0x0123456789ABCDEF, 7]], dtype=np.uint64)
_WORDS: Final = np.array([[0, 0], [0, 2**64 - 1], [2**64 - 1, 0], [0xFEDCBA9876543210, 1]], dtype=np.uint64)


class _Chosen(BlockSource):
    """A block function whose images were chosen beforehand."""

    __slots__ = ("_images",)

    def __init__(self, images: U64) -> None:
        super().__init__(bytes(16))
        self._images = images

    def fill(self, inputs: U64, out: U64) -> None:
        out.reshape(-1, 2)[:] = self._images[: out.size // 2]


def id_violations(kind: type[Stream] = Stream) -> list[str]:
    """Return what is wrong with the ids of a stream; nothing means that they add nothing to epsilon.

    Args:
        kind: the class that makes the ids.

    Privacy:
        Where the id is exactly the image of one block, whatever the seed, its law is uniform for every record: the
        ratio of any two is 1. Where its key is not that of the blocks that perturb, it is independent of the report.
    """

    class Planted(kind):  # type: ignore[misc, valid-type]  # the class is the argument
        __slots__ = ()

        def _id_source(self) -> BlockSource:
            return _Chosen(_WORDS)

    found = []
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 1, 1, 1]):
        ids = Planted(bytes(16), bytes(16)).ids(_SEEDS[order])
        if not np.array_equal(ids.view("<u8").reshape(-1, 2), _WORDS):
            found.append("a report's id is not one whole block of random bits, so its law may depend on the record")
            break
    stream = Secret.from_seed(0).stream(fingerprint="audit of ids")
    probe = kind(stream._record_key, stream._block_key)
    blocks = np.concatenate([probe.blocks(_SEEDS, 0, 64).reshape(-1, 2), probe.answer(1).blocks(_SEEDS, 0, 1)[0]])
    ids = probe.ids(_SEEDS).view("<u8").reshape(-1, 2)
    if (ids[:, None, :] == blocks[None, :, :]).all(axis=2).any():
        found.append("a report's id repeats a block of random bits that also perturbs the report")
    return found
