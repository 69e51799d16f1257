"""The results tree's writer: claims, numbered attempts, the official record, moving things aside.

Nothing is overwritten but `claim.json`, `current` and result.json, and nothing is deleted.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from windtunnel.domain.digest import sha256_bytes, to_json, to_line
from windtunnel.domain.result import AttemptRecord, Result
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.host.clock import utc_now
from windtunnel.host.processes import ProcessId
from windtunnel.store.files import append_line, read_json, sha256_file, sync_directory, write_atomic
from windtunnel.store.layout import LINKED, AttemptDir, CellDir
from windtunnel.store.sealing import check_manifest, seal

__all__ = [
    "Claim",
    "check_manifest",
    "claim",
    "new_attempt",
    "publish",
    "quarantine",
    "read_claim",
    "read_result",
    "release",
    "seal",
    "set_aside",
    "update_claim",
    "write_attempt",
]

_REMEDY = "Move it away, or give the run's command again: an unreadable result is set aside and its cell is run"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """`claim.json`: who works on a cell now. `process`: the supervisor; `container`: the subject's, when it has one."""

    schemaVersion: int = 1
    run_id: str
    cell: str
    process: ProcessId
    ts: str
    attempt: int | None = None
    container: str | None = None


def claim(cell: CellDir, claim: Claim) -> bool:
    """Take a cell; False when somebody has it. The file appears whole and durable, or not at all."""
    fd, temporary = tempfile.mkstemp(dir=cell.root, prefix=".claim.")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(to_json(claim))
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.link(temporary, cell.claim)  # fails when the name is taken, like O_EXCL
        return True
    except FileExistsError:
        return False
    finally:
        Path(temporary).unlink(missing_ok=True)


def update_claim(cell: CellDir, claim: Claim) -> None:
    """Say more about a claim that this process holds (attempt, container)."""
    write_atomic(cell.claim, to_json(claim))


def read_claim(cell: CellDir) -> Claim | None:
    """Who has the cell, None when nobody has. Raises FileDamaged."""
    try:
        return read_json(cell.claim, Claim)
    except FileNotFoundError:
        return None


def release(cell: CellDir) -> None:
    """Give a cell back; the caller holds the claim, or has proved that its holder is gone."""
    cell.claim.unlink(missing_ok=True)


def new_attempt(cell: CellDir) -> tuple[int, AttemptDir]:
    """Make the next attempt's directories; its number is above every one that exists. Raises OSError."""
    cell.attempts.mkdir(parents=True, exist_ok=True)
    number = max((int(path.name) for path in cell.attempts.iterdir() if path.name.isdecimal()), default=0) + 1
    while True:
        attempt = cell.attempt(number)
        with suppress(FileExistsError):
            attempt.root.mkdir()
            break
        number += 1
    for part in ("box", "grades", *LINKED):
        (attempt.root / part).mkdir()
    attempt.box.chmod(0o777)  # a container's user may be any; mkdir's mode goes through the umask
    return number, attempt


def write_attempt(attempt: AttemptDir, record: AttemptRecord) -> None:
    """Write attempt.json."""
    write_atomic(attempt.record, to_json(record))


def publish(cell: CellDir, number: int, result: Result) -> str:
    """Make an attempt's result the cell's; returns the `sha256:` of result.json.

    result.json is replaced last: whoever sees it finds `current` and the old paths leading to its attempt."""
    _link(cell.current, f"attempts/{number}")
    for name in LINKED:
        _link(cell.root / name, f"current/{name}")
    sync_directory(cell.root)
    data = to_json(result)
    write_atomic(cell.result, data)
    return sha256_bytes(data)


def _link(path: Path, target: str) -> None:
    with suppress(OSError):
        if path.readlink() == Path(target):
            return
    if path.is_dir() and not path.is_symlink():
        path.rename(_free(path, "before"))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    temporary.symlink_to(target)
    temporary.replace(path)


def _free(path: Path, word: str) -> Path:
    number = 1
    while os.path.lexists(found := path.with_name(f"{path.name}.{word}-{number}")):
        number += 1
    return found


def read_result(path: Path) -> Result:
    """Read a result.json. Raises FileDamaged (empty, torn, not UTF-8, NaN, newer schema), FileNotFoundError."""
    try:
        return read_json(path, Result)
    except FileNotFoundError:
        raise
    except FileDamaged as damaged:
        raise FileDamaged(path, damaged.found, _REMEDY) from damaged
    except OSError as error:
        raise FileDamaged(path, f"cannot be read: {error.strerror}", _REMEDY) from error


def set_aside(cell: CellDir, why: str) -> Path:
    """Move a result.json that is of no use to `result.json.torn-<n>`; a line in `set-aside.ndjson` says why."""
    target = _free(cell.result, "torn")
    sha256 = sha256_file(cell.result) if cell.result.is_file() else None
    _note(cell.root / "set-aside.ndjson", {"ts": utc_now(), "file": target.name, "sha256": sha256, "why": why})
    cell.result.rename(target)
    sync_directory(cell.root)
    return target


def quarantine(results_root: Path, cell: CellDir, why: str) -> Path:
    """Move a whole cell to `_quarantine/<stamp>-<hex>/<its path>`; a line in `_quarantine/quarantine.ndjson` says why.

    Raises InputWrong for a directory that is not below the root."""
    if not cell.root.is_relative_to(results_root) or cell.root == results_root:
        raise InputWrong(f"{cell.root} is not below the results root {results_root}")
    now = utc_now()
    stamp = datetime.fromisoformat(now).strftime("%Y%m%dT%H%M%SZ")
    shelf = results_root / "_quarantine"
    target = shelf / f"{stamp}-{secrets.token_hex(4)}" / cell.root.relative_to(results_root)
    target.parent.mkdir(parents=True)
    sha256 = sha256_file(cell.result) if cell.result.is_file() else None
    line = {"ts": now, "from": str(cell.root), "to": str(target), "result_sha256": sha256, "why": why}
    _note(shelf / "quarantine.ndjson", line)
    cell.root.rename(target)
    sync_directory(cell.root.parent)
    return target


def _note(path: Path, value: object) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        append_line(fd, to_line(value), durable=True)
    finally:
        os.close(fd)
