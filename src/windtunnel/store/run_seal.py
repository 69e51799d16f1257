"""`run-seal.json`: the hashes of a run's own files as they were when it ended. Logs are sealed up to there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from windtunnel.domain.digest import to_json
from windtunnel.errors import FileDamaged
from windtunnel.host.clock import utc_now
from windtunnel.store.files import read_json, write_atomic
from windtunnel.store.layout import RunDir

__all__ = ["RunSeal", "SealedFile", "check_run_seal", "seal_run"]


class SealedFile(msgspec.Struct, frozen=True, kw_only=True):
    """`bytes`: how much of the file the hash is over; all of it but for the two logs."""

    sha256: str
    bytes: int


class RunSeal(msgspec.Struct, frozen=True, kw_only=True):
    """`files`: path relative to the run directory -> what it held."""

    schemaVersion: int = 1
    run_id: str
    sealed_at: str
    files: dict[str, SealedFile]


def seal_run(run: RunDir, run_id: str) -> None:
    """Write the seal, after the run's last event. A resumed run is sealed again when it ends again."""
    files = {path.relative_to(run.root).as_posix(): _sealed(path, None) for path in _files(run)}
    write_atomic(run.seal, to_json(RunSeal(run_id=run_id, sealed_at=utc_now(), files=files)))


def check_run_seal(run: RunDir) -> tuple[int, list[str]]:
    """How many files are sealed, and what is no longer as it was, each by name. Never raises for what is on disk."""
    try:
        seal = read_json(run.seal, RunSeal)
    except FileNotFoundError:
        return 0, [f"{run.seal.name}: missing"]
    except FileDamaged as damaged:
        return 0, [f"{run.seal.name}: {damaged.found}"]
    problems = []
    for name, sealed in sorted(seal.files.items()):
        path = run.root / name
        if not path.is_file():
            problems.append(f"{name}: missing")
        elif _sealed(path, sealed.bytes) != sealed or (not _grows(path) and path.stat().st_size != sealed.bytes):
            problems.append(f"{name}: changed since the run ended")
    return len(seal.files), problems


def _files(run: RunDir) -> Iterator[Path]:
    named = (run.plan, run.receipt, run.confirmation, run.manifest, run.pins, run.events, run.log)
    yield from (path for path in named if path.is_file())
    if run.evidence.is_dir():
        found = sorted(path for path in run.evidence.rglob("*") if path.is_file() and not path.is_symlink())
        # The gateway's own words are put there when it has ended; they are for diagnosis, no claim rests on them.
        yield from (path for path in found if path.name != "gateway.log")


def _grows(path: Path) -> bool:
    return path.name in {"events.ndjson", "run.log"}


def _sealed(path: Path, limit: int | None) -> SealedFile:
    digest, left, size = hashlib.sha256(), limit, 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20 if left is None else min(1 << 20, left)):
            digest.update(chunk)
            size += len(chunk)
            left = None if left is None else left - len(chunk)
    return SealedFile(sha256=f"sha256:{digest.hexdigest()}", bytes=size)
