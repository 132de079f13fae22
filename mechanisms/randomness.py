"""The only place where randomness comes from.

Every random bit of a report is a pseudo-random function of a `Secret` and of a label: the collection's
fingerprint, the round, the period, the user, and the user's canonical record. So a retried or repeated piece
of work sends the same report, two different records of one user never share bits, and nobody holds generator
state that could be copied to another process.

    user digest   = CBC-MAC under K_user of the id's length and text                     (128 bits)
    record digest = sum over the user's pairs of AES[K_record](key index and tag, value), modulo 2^64 in each half
    seed          = user digest XOR record digest
    block j       = AES[K_block](seed XOR (j, j))                                        (two 64-bit words)
    ... of plane p = AES[K_p](seed XOR (j, j)), for the bit planes p = 1, 2, … of unary reports

K_user depends on the secret alone, K_record and K_block on secret and label, K_p on K_block. All words are
little-endian.

Privacy:
    With ideal random bits a mechanism's epsilon is exact. AES-128 makes it computational: it holds against
    everybody who cannot tell AES from a random permutation. Who holds the secret can test guesses of records.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from typing import Final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from ..errors import InputError
from . import compiled
from .data import I16, I64, U8, Records
from .identifiers import MAX_DIGITS, TENS, decimal_digits, digit_counts, texts_of

__all__ = ["U64", "BlockSource", "Secret", "Stream", "UserDigests", "bytes_of", "mulhi", "population_generator"]

U64 = npt.NDArray[np.uint64]

_WORD: Final = np.dtype("<u8")
_BLOCK: Final = np.dtype("V16")
_SCHEME: Final = b"ldp-beam randomness 2"
#: Ids of more bytes are hashed one by one, so that one huge id cannot make the whole batch wait.
_LONG_ID: Final = 1024
#: Rows of texts that are digested together: their blocks stay in the processor's second-level cache.
_ROWS: Final = 8192
#: The same for integers, where the time of calls weighs more.
_INTEGER_ROWS: Final = 65_536
_NO_VALUE: Final = np.uint64(1 << 63)
#: Where so many pairs share a key on average, its image is made once.
_SHARED: Final = 4


def _derive(material: bytes, *fields: str) -> bytes:
    """Return 32 pseudo-random bytes for the label `fields`, each of which is length-prefixed."""
    label = _SCHEME
    for text in fields:
        raw = text.encode("utf-8")
        label += len(raw).to_bytes(8, "little") + raw
    return hmac.new(material, label, hashlib.sha256).digest()


def _masks(byte: int) -> npt.NDArray[np.void]:
    """Table of 17 blocks whose first 0, 1, …, 16 bytes are `byte` and the rest 0."""
    table = np.tri(17, 16, -1, dtype=np.uint8) * np.uint8(byte)
    return table.view(_BLOCK).reshape(-1)


_KEEP: Final = _masks(0xFF)
_ZEROS: Final = _masks(ord("0"))


def _encryptor(key: bytes) -> CipherContext:
    # ECB here is the bare block function over a batch of distinct inputs; nothing is encrypted for anyone.
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor()


class BlockSource:
    """AES-128 over whole arrays of 16-byte blocks, under one key and under one for each bit plane.

    Belongs to one thread and is never pickled; see `block_source`.
    """

    __slots__ = ("_encryptors", "_key")

    def __init__(self, key: bytes) -> None:
        """Prepare the cipher for a 16-byte key."""
        self._key = key
        self._encryptors = [_encryptor(key)]

    def fill(self, inputs: U64, out: U64) -> None:
        """Write the image of every block of `inputs` to `out`.

        Args:
            inputs: contiguous little-endian words, two to a block.
            out: contiguous array of the same size; may be `inputs` itself.
        """
        source, target = bytes_of(inputs), bytes_of(out)
        encryptor = self._encryptors[0]
        if len(source) <= 16:  # the cipher asks for 15 bytes of room behind the last block
            target[:] = encryptor.update(source)
            return
        encryptor.update_into(source[:-16], target)
        target[-16:] = encryptor.update(source[-16:])

    def fill_plane(self, plane: int, inputs: memoryview, out: memoryview) -> None:
        """Write the image of every block under the key of a plane.

        Args:
            plane: 0 for the key of `fill`, 1, 2, … for others; small, since the keys are kept.
            inputs: bytes of the blocks, see `bytes_of`.
            out: bytes of an array that has room for one block more, which is overwritten.
        """
        while len(self._encryptors) <= plane:
            key = _derive(self._key, "plane", str(len(self._encryptors)))[:16]
            self._encryptors.append(_encryptor(key))
        self._encryptors[plane].update_into(inputs, out)


def bytes_of(words: U64) -> memoryview:
    """Return the bytes of a contiguous array."""
    return words.reshape(-1).view(np.uint8).data


_SOURCES: Final = threading.local()
#: Keys whose ciphers a thread keeps: a job has three streams or so.
_KEPT_SOURCES: Final = 16


def block_source(key: bytes) -> BlockSource:
    """Return the block function of a key, which this thread keeps: making one takes as long as a thousand blocks."""
    kept: dict[bytes, BlockSource] | None = getattr(_SOURCES, "kept", None)
    if kept is None or (key not in kept and len(kept) >= _KEPT_SOURCES):
        kept = _SOURCES.kept = {}
    if key not in kept:
        kept[key] = BlockSource(key)
    return kept[key]


class Secret:
    """32 secret bytes from which all random bits of a collection's clients follow.

    The secret is as sensitive as the raw data: its holder can test which record fits a report. It is never
    shown by `repr`. In real use each client has its own; in a simulation one secret stands for all clients.
    """

    __slots__ = ("_material", "_private")

    def __init__(self, material: bytes, *, private: bool = True) -> None:
        """Wrap 32 bytes; `private` is false where they follow from something that is not secret."""
        if len(material) != 32:
            raise InputError(f"A secret has 32 bytes, but {len(material)} were given.")
        self._material = bytes(material)
        self._private = private

    @classmethod
    def new(cls) -> Secret:
        """Draw a fresh secret from the operating system."""
        return cls(secrets.token_bytes(32))

    @classmethod
    def from_hex(cls, text: str) -> Secret:
        """Read a secret from its 64 hexadecimal digits; white space around them is ignored.

        Raises:
            InputError: where the text is anything else. The message does not repeat the text.
        """
        digits = text.strip()
        if len(digits) != 64 or not all(c in "0123456789abcdefABCDEF" for c in digits):
            raise InputError(
                f"A secret is 64 hexadecimal digits (32 bytes), but a text of {len(digits)} characters was "
                "given that is not; make one with `ldp-beam secret new FILE`."
            )
        return cls(bytes.fromhex(digits))

    @classmethod
    def from_seed(cls, seed: int) -> Secret:
        """Derive a secret from a number, for tests and simulations. Its runs are not private."""
        return cls(hashlib.sha256(_SCHEME + b" seed " + str(int(seed)).encode()).digest(), private=False)

    @property
    def private(self) -> bool:
        """Whether the bytes are secret; false where they come from a seed."""
        return self._private

    @property
    def id(self) -> str:
        """A name of the secret that tells nothing about it: 16 hexadecimal digits."""
        return _derive(self._material, "id")[:8].hex()

    def hex(self) -> str:
        """Return the secret itself as 64 hexadecimal digits, for the file that keeps it."""
        return self._material.hex()

    def users(self) -> UserDigests:
        """Return the keyed digests of user ids under this secret."""
        return UserDigests(_derive(self._material, "user")[:16], _derive(self._material, "long user id"))

    def stream(self, *, fingerprint: str, period: str = "", round: int = 0) -> Stream:
        """Return the random bits of one collection, period and round.

        Args:
            fingerprint: client-side fingerprint of the collection's definition.
            period: name of the period or window; a new period gives fresh bits (and spends epsilon again).
            round: number of the round in a multi-round mechanism.
        """
        label = (fingerprint, period, str(int(round)))
        return Stream(_derive(self._material, "record", *label)[:16], _derive(self._material, "block", *label)[:16])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._material, other._material) and self._private == other._private

    def __hash__(self) -> int:
        return hash((self.id, self._private))

    def __repr__(self) -> str:
        return f"Secret(id={self.id!r}, private={self._private})"


class UserDigests:
    """Keyed 128-bit digests of user ids. An id is digested as text: 5 and "5" are one user.

    Texts of up to 1,024 bytes go through CBC-MAC with AES-128, the length first and then the zero-padded
    text; longer ones through HMAC-SHA256 under a key of its own. Holds keys only and may be pickled.
    """

    __slots__ = ("_first", "_key", "_long_key")

    def __init__(self, key: bytes, long_key: bytes) -> None:
        """Hold the two keys and the encrypted first blocks, which depend on an id's length alone."""
        self._key = key
        self._long_key = long_key
        lengths = np.zeros((_LONG_ID + 1, 2), dtype=_WORD)
        lengths[:, 0] = np.arange(_LONG_ID + 1)
        BlockSource(key).fill(lengths, lengths)
        self._first = lengths.view(_BLOCK).reshape(-1)

    def text(self, offsets: npt.NDArray[np.int64] | npt.NDArray[np.int32], data: U8) -> U8:
        """Digest n texts that lie one behind the other, as Arrow keeps them.

        Args:
            offsets: text i takes the bytes offsets[i] to offsets[i + 1], (n + 1,).
            data: UTF-8 bytes.

        Returns:
            uint8 (n, 16).
        """
        bounds = offsets.astype(np.int64)
        n = len(bounds) - 1
        out = np.empty((n, 2), dtype=_WORD)
        if n == 0:
            return out.view(np.uint8)
        first, last = int(bounds[0]), int(bounds[-1])
        bounds -= first
        padded = np.zeros(last - first + 16, dtype=np.uint8)
        padded[: last - first] = data[first:last]
        # A block may start at any byte: a view with a step of one byte over the padded text.
        blocks: npt.NDArray[np.void] = np.ndarray((last - first + 1,), dtype=_BLOCK, buffer=padded.data, strides=(1,))
        source = block_source(self._key)
        for start in range(0, n, _ROWS):
            self._text_rows(bounds[start : start + _ROWS + 1], blocks, padded, source, out[start : start + _ROWS])
        return out.view(np.uint8)

    def _text_rows(self, bounds: I64, blocks: npt.NDArray[np.void], padded: U8, source: BlockSource, out: U64) -> None:
        starts, sizes = bounds[:-1], np.diff(bounds)
        long = np.flatnonzero(sizes > _LONG_ID)
        if len(long):
            sizes[long] = 0
        out[:] = self._first[sizes].view(_WORD).reshape(-1, 2)
        if sizes.min() > 0:  # the usual case: no row drops out before its first block
            self._absorb(starts, sizes, blocks, source, out)
            rows = np.flatnonzero(sizes > 16)
        else:
            rows = np.flatnonzero(sizes)
        depth = 16 if sizes.min() > 0 else 0
        while len(rows):
            state = out[rows]
            self._absorb(starts[rows] + depth, sizes[rows] - depth, blocks, source, state)
            out[rows] = state
            depth += 16
            rows = rows[sizes[rows] > depth]
        for row in long:
            text = padded[bounds[row] : bounds[row + 1]].tobytes()
            out[row] = np.frombuffer(hmac.new(self._long_key, text, hashlib.sha256).digest()[:16], dtype=_WORD)

    @staticmethod
    def _absorb(starts: I64, left: I64, blocks: npt.NDArray[np.void], source: BlockSource, state: U64) -> None:
        """One step of CBC over the rows whose next block begins at `starts` and has `left` bytes or 16."""
        block = blocks[starts].view(_WORD)
        block &= _KEEP[np.minimum(left, 16)].view(_WORD)
        flat = state.reshape(-1)
        flat ^= block
        source.fill(flat, flat)

    def integers(self, values: npt.NDArray[np.integer]) -> U8:
        """Digest n integers as their decimal texts.

        Args:
            values: any integer type, (n,).

        Returns:
            uint8 (n, 16), equal to the digests of the texts.
        """
        n = len(values)
        out = np.empty((n, 2), dtype=_WORD)
        if n == 0:
            return out.view(np.uint8)
        limit = 10**MAX_DIGITS
        if int(values.min()) >= 0 and int(values.max()) < limit:
            self._short_integers(values.astype(np.int64, copy=False), out)
            return out.view(np.uint8)
        short = (values >= 0) & (values < limit)
        if short.any():
            some = np.empty((int(short.sum()), 2), dtype=_WORD)
            self._short_integers(values[short].astype(np.int64), some)
            out[short] = some
        out[~short] = self.text(*texts_of(values[~short])).view(_WORD)
        return out.view(np.uint8)

    def _short_integers(self, values: I64, out: U64) -> None:
        # Digits 0 to 9 and the character "0" share no bit, so the text is digits XOR zeros, and the zeros
        # join the first block's table.
        first = self._first[:17].view(_WORD) ^ _ZEROS.view(_WORD)
        table = first.view(_BLOCK)
        source = block_source(self._key)
        if (loops := compiled.loops(len(values))) is not None:
            loops.digits(np.ascontiguousarray(values), first.view("<u4").reshape(-1, 4), TENS, out.view("<u4"))
            source.fill(out, out)
            return
        for start in range(0, len(values), _INTEGER_ROWS):
            part, rows = values[start : start + _INTEGER_ROWS], out[start : start + _INTEGER_ROWS]
            lengths = digit_counts(part)
            if isinstance(lengths, int):
                decimal_digits(part, lengths, rows, first[2 * lengths : 2 * lengths + 2])
            else:
                decimal_digits(part, lengths, rows)
                flat = rows.reshape(-1)
                flat ^= table[lengths].view(_WORD)
            source.fill(rows, rows)

    def __repr__(self) -> str:
        return "UserDigests(…)"


class Stream:
    """The random bits of one collection, period and round, for every user and every record.

    Holds two keys and nothing else: it may be pickled and shared, and clones agree.
    """

    __slots__ = ("_block_key", "_record_key")

    def __init__(self, record_key: bytes, block_key: bytes) -> None:
        """Hold the keys of the record digest and of the random blocks, 16 bytes each."""
        self._record_key = record_key
        self._block_key = block_key

    def answer(self, number: int) -> Stream:
        """Return the random bits of one of several answers of a user in one report: blocks of their own."""
        return Stream(self._record_key, _derive(self._block_key, "answer", str(int(number)))[:16])

    def source(self) -> BlockSource:
        """Return the block function, for this thread."""
        return block_source(self._block_key)

    def seeds(self, records: Records) -> U64:
        """Return one 128-bit seed a user, from the user's digest and canonical record: uint64 (n, 2)."""
        users = np.ascontiguousarray(records.users).view(_WORD)
        if not len(records.keys):
            return users.copy()
        pairs = self._pairs(records)
        if records.one_each:
            pairs ^= users
            return pairs
        sizes, seeds = records.sizes, users.copy()
        held = np.flatnonzero(sizes)  # reduceat would give an empty user the next user's first pair
        starts = records.offsets[held]
        for lane in (0, 1):
            seeds[held, lane] ^= np.add.reduceat(pairs[:, lane], starts)
        return seeds

    def _pairs(self, records: Records) -> U64:
        """Images of the pairs under the key of record digests, uint64 (m, 2)."""
        top = int(records.keys.max()) + 1
        if records.values is None and records.tags is None and _SHARED * top < len(records.keys):
            # one image for all who hold a key
            images = self._images(np.arange(top), None, None).view(_BLOCK).reshape(-1)
            return np.take(images, records.keys).view(_WORD).reshape(-1, 2)
        return self._images(records.keys, records.values, records.tags)

    def _images(self, keys: npt.NDArray[np.integer], values: I64 | None, tags: I16 | None) -> U64:
        pairs = np.empty((len(keys), 2), dtype=_WORD)
        pairs[:, 0] = keys
        pairs[:, 1] = _NO_VALUE if values is None else values.view(_WORD)
        if tags is not None:  # beside the key index, which takes 32 bits; no tag leaves the word as it is
            pairs[:, 0] |= tags.view(np.uint16).astype(_WORD) << np.uint64(32)
        block_source(self._record_key).fill(pairs, pairs)
        return pairs

    def ids(self, seeds: U64) -> U8:
        """Return one opaque 128-bit id for every seed, from a block under a key of its own.

        Privacy:
            With ideal random bits the ids are uniform whatever the records hold, and independent of the reports, so
            that they add nothing to epsilon. A user who answers again with another record gets another id.

        Args:
            seeds: uint64 (n, 2), see `seeds`.

        Returns:
            uint8 (n, 16).
        """
        out = np.empty((len(seeds), 2), dtype=_WORD)
        if len(seeds):
            self._id_source().fill(np.ascontiguousarray(seeds), out)
        return out.view(np.uint8)

    def _id_source(self) -> BlockSource:
        return block_source(_derive(self._block_key, "report id")[:16])

    def blocks(self, seeds: U64, first: int, count: int, out: U64 | None = None, *, plane: int = 0) -> U64:
        """Return the blocks `first` to `first + count` of every seed.

        Args:
            seeds: uint64 (n, 2).
            first: number of the first block.
            count: how many blocks.
            out: array to write to.
            plane: number of the bit plane; 0 is that of the user's own draws.

        Returns:
            uint64 (count, n, 2): block j of all users lies together; two words a user.
        """
        if out is None:
            out = np.empty((count, len(seeds), 2), dtype=_WORD)
        for j in range(count):
            np.bitwise_xor(seeds, np.uint64(first + j), out=out[j])
        if plane == 0:
            self.source().fill(out, out)
            return out
        room = bytearray(out.nbytes + 16)
        self.source().fill_plane(plane, bytes_of(out), memoryview(room))
        out[...] = np.frombuffer(room, dtype=_WORD, count=out.size).reshape(out.shape)
        return out

    def __repr__(self) -> str:
        return "Stream(…)"


def mulhi(words: U64, bound: int | npt.NDArray[np.integer]) -> U64:
    """Return the high 64 bits of words * bound: integers 0 to bound - 1 from uniform words.

    Every outcome has floor(2^64 / bound) or one more words, a bias that `exact_epsilon` accounts for.

    Args:
        words: uniform words, uint64 (n,).
        bound: one bound of 1 to 2^64 - 1, or one for each word, (n,).

    Returns:
        uint64 (n,).
    """
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    factor = np.asarray(bound, dtype=np.uint64)
    high_word = words >> half
    if factor.size == 0 or int(factor.max()) >> 32 == 0:
        high_word *= factor
        # the lower half of a word matters only where its product, which is below the bound, may carry
        near = np.flatnonzero(high_word.view("<u4")[::2] >= ((1 << 32) - factor).astype("<u4"))
        if len(near):
            some = factor if factor.ndim == 0 else factor[near]
            high_word[near] += (words[near] & low) * some >> half
        high_word >>= half
        return high_word
    low_word = words & low
    high_factor, low_factor = factor >> half, factor & low
    middle = high_word * low_factor + (low_word * low_factor >> half)
    other = low_word * high_factor + (middle & low)
    result: U64 = high_word * high_factor + (middle >> half) + (other >> half)
    return result


def population_generator(seed: int, block: int) -> np.random.Generator:
    """Return a generator that invents the people of a simulated population; never for a report.

    Args:
        seed: number of the simulation.
        block: number of the batch of people, so that any worker can make any batch.
    """
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, block))))
