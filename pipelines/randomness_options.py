"""Where a run's secret comes from: fresh from the operating system, a file, or a number for tests."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import InputError
from ..mechanisms import Secret
from ..schemas.manifest import Randomness

__all__ = ["choose_secret", "new_secret_file", "read_secret_file"]


def choose_secret(*, secret_file: str | None, seed: int | None, period: str | None) -> tuple[Secret, Randomness]:
    """Return the secret of a run and what the manifest says of it.

    Args:
        secret_file: a file made by `ldp-beam secret new`; needs a period.
        seed: a number, for tests and simulations: not private.
        period: name of the period; another name gives fresh reports.

    Raises:
        InputError: Both are given, a secret file comes without a period, or the file is not safe.
    """
    if secret_file is not None and seed is not None:
        raise InputError("--secret-file and --seed exclude each other: a run has one source of randomness.")
    if secret_file is not None:
        if not period:
            raise InputError(
                "--secret-file needs --period TEXT, for example --period 2026-11: under the same secret and period "
                "an unchanged record repeats its report, another period gives a fresh one."
            )
        secret = read_secret_file(Path(secret_file))
        source = "secret file"
    elif seed is not None:
        secret, source = Secret.from_seed(seed), "seed"
    else:
        secret, source = Secret.new(), "fresh secret"
    return secret, Randomness(source=source, private=secret.private, secret_id=secret.id, period=period or "")


def new_secret_file(path: Path) -> Secret:
    """Make a new secret in a new file that only its owner can read (mode 0600).

    Raises:
        InputError: The file exists, or cannot be made.
    """
    secret = Secret.new()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError(
            f"{path} exists. A secret is never overwritten, since without it old reports cannot be repeated."
        ) from None
    except OSError as error:
        raise InputError(f"{path}: the secret file cannot be made: {error.strerror}.") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o600)  # whatever the umask is
        file.write(secret.hex() + "\n")
    return secret


def read_secret_file(path: Path) -> Secret:
    """Read a secret.

    Raises:
        InputError: The file is missing, readable by others, or does not hold 32 bytes as hex.
    """
    try:
        with path.open(encoding="ascii") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise InputError(
                    f"{path} can be read by others (mode {mode:04o}). A secret is as sensitive as the raw data: "
                    f"run chmod 600 {path}, and make a new one if somebody may have read it."
                )
            text = file.read(1024)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist. Make a secret with: ldp-beam secret new {path}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} holds no secret: it must hold 64 hexadecimal digits.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        return Secret.from_hex(text.strip())
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
