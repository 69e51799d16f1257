"""The one reader of a run directory, for status, verify and the dashboard alike.

It never raises for a file that is missing, torn or of a newer schema: the file is named in `problems`, and what can be
told without it is told. It never writes, but for `rebuild_status`.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from windtunnel.domain.cell import folder
from windtunnel.domain.digest import to_json
from windtunnel.domain.events import TERMINAL, Event, Kind
from windtunnel.domain.fold import Fold
from windtunnel.domain.manifest import Confirmation, Manifest
from windtunnel.domain.status import Liveness, Status, liveness
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.host.clock import boot_id, utc_now
from windtunnel.host.processes import ProcessId, is_alive
from windtunnel.store.event_log import last_event, read_events
from windtunnel.store.files import read_json, write_atomic
from windtunnel.store.layout import RunDir
from windtunnel.store.owner import OwnerLock, read_owner

__all__ = ["RunState", "RunSummary", "find_run", "list_runs", "read_run", "rebuild_status"]

T = TypeVar("T")
_INTERVAL_S = 15.0  # of a run whose manifest cannot be read
_LISTED = 20
_RUN_ENDS_OR_BEGINS = TERMINAL | {Kind.RUN_STARTED, Kind.RUN_RESUMED}


@dataclass(frozen=True)
class RunState:
    """Everything a run directory says. `status`: rebuilt from manifest and events, with the heartbeat and the signs of
    life of the stored one; None without a manifest. `status_on_disk`: status.json as it is. `torn_bytes`: of a last
    line that is being written or was left by a crash. `gaps`: what breaks the event log."""

    run: RunDir
    run_id: str
    manifest: Manifest | None
    confirmation: Confirmation | None
    events: tuple[Event, ...]
    torn_bytes: int
    gaps: tuple[str, ...]
    status_on_disk: Status | None
    status: Status | None
    liveness: Liveness
    problems: tuple[str, ...]

    @property
    def ended(self) -> bool:
        """Whether the log's last word on the run is that it ended, one way or another."""
        return _is_terminal(self.events)


@dataclass(frozen=True)
class RunSummary:
    """A run as `list` shows it, from its small files and the log's last line only."""

    run: RunDir
    run_id: str
    created_at: str | None
    status: Status | None
    liveness: Liveness
    problems: tuple[str, ...]


def read_run(run_dir: RunDir) -> RunState:
    """Read a run. Raises nothing for damaged files; see `problems`."""
    problems: list[str] = []
    manifest = _read(run_dir.manifest, Manifest, problems)
    on_disk = _read(run_dir.status, Status, problems, required=False)
    confirmation = _read(run_dir.confirmation, Confirmation, problems)
    if not run_dir.plan.is_file():
        problems.append(f"{run_dir.plan}: missing")
    run_id = manifest.run_id if manifest else run_dir.root.name
    events, torn, gaps = _events(run_dir, run_id, problems)
    rebuilt = _rebuild(manifest, events, problems)
    status = _with_life(rebuilt, on_disk)
    return RunState(
        run=run_dir,
        run_id=run_id,
        manifest=manifest,
        confirmation=confirmation,
        events=events,
        torn_bytes=torn,
        gaps=gaps,
        status_on_disk=on_disk,
        status=status,
        liveness=_liveness(run_dir, manifest, status or on_disk, terminal=_is_terminal(events), problems=problems),
        problems=tuple(problems),
    )


def _read(path: Path, type_: type[T], problems: list[str], *, required: bool = True) -> T | None:
    try:
        return read_json(path, type_)
    except FileNotFoundError:
        if required:
            problems.append(f"{path}: missing")
    except FileDamaged as damaged:
        problems.append(f"{path}: {damaged.found}")
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
    return None


def _events(run_dir: RunDir, run_id: str, problems: list[str]) -> tuple[tuple[Event, ...], int, tuple[str, ...]]:
    try:
        found = read_events(run_dir.events, run_id)
    except OSError as error:
        problems.append(f"{run_dir.events}: {error.strerror}")
        return (), 0, ()
    if not found.events:
        problems.append(f"{run_dir.events}: no event yet")
    problems += [f"{run_dir.events}: {error}" for error in found.errors]
    return found.events, found.torn_bytes, found.errors


def _rebuild(manifest: Manifest | None, events: tuple[Event, ...], problems: list[str]) -> Status | None:
    if manifest is None:
        return None
    fold = Fold(manifest)
    for event in events:
        fold.apply(event)
    problems += fold.problems
    return fold.status()


def _with_life(rebuilt: Status | None, on_disk: Status | None) -> Status | None:
    """Events do not tell heartbeats; they come from the stored status where it is of this run and not older."""
    if rebuilt is None or on_disk is None or on_disk.run_id != rebuilt.run_id:
        return rebuilt
    heartbeat = max(filter(None, (rebuilt.heartbeat_at, on_disk.heartbeat_at)), default=None)
    seen = {(cell.cell_id, cell.attempt, cell.phase): cell for cell in on_disk.active}
    active = tuple(seen.get((cell.cell_id, cell.attempt, cell.phase), cell) for cell in rebuilt.active)
    return msgspec.structs.replace(rebuilt, heartbeat_at=heartbeat, active=active)


def _is_terminal(events: tuple[Event, ...]) -> bool:
    last = next((event.event for event in reversed(events) if event.event in _RUN_ENDS_OR_BEGINS), None)
    return last in TERMINAL


def _liveness(
    run_dir: RunDir, manifest: Manifest | None, status: Status | None, *, terminal: bool, problems: list[str]
) -> Liveness:
    owner, host = _owner(run_dir, manifest, status)
    same_host = host == socket.gethostname()
    interval_s = manifest.progress_interval_s if manifest else _INTERVAL_S
    alive = None if owner is None or not same_host else _still_runs(owner)
    try:
        return liveness(
            status, now=utc_now(), interval_s=interval_s, owner_alive=alive, same_host=same_host, terminal=terminal
        )
    except ValueError as error:
        problems.append(f"{run_dir.status}: heartbeat_at: {error}")
        return "stalled"


def _owner(run_dir: RunDir, manifest: Manifest | None, status: Status | None) -> tuple[ProcessId | None, str | None]:
    """Who owns the run, on which host: the lock file knows it first, then the last start's event, then the manifest."""
    noted = read_owner(run_dir)
    if noted is not None:
        return noted.process, noted.host
    for source in (status, manifest):
        if source is not None and source.pid is not None and source.boot_id is not None:
            start = getattr(source, "start_time", None)
            return ProcessId(pid=source.pid, start_time=start or 0.0, boot_id=source.boot_id), source.host
    return None, None


def _still_runs(owner: ProcessId) -> bool | None:
    """None: it cannot be told, the start time is not known and the pid may be another process's by now."""
    if owner.boot_id == boot_id() and not owner.start_time:
        return None
    return is_alive(owner)


def list_runs(state_root: Path) -> list[RunSummary]:
    """The runs below a state root, newest first; a directory without a manifest and events is no run."""
    if not state_root.is_dir():
        return []
    found = [RunDir(path) for path in state_root.iterdir() if path.is_dir() and _is_run(RunDir(path))]
    return sorted((_summary(run) for run in found), key=lambda s: (s.created_at or "", s.run_id), reverse=True)


def _is_run(run_dir: RunDir) -> bool:
    return any(path.exists() for path in (run_dir.manifest, run_dir.events, run_dir.plan))


def _summary(run_dir: RunDir) -> RunSummary:
    problems: list[str] = []
    manifest = _read(run_dir.manifest, Manifest, problems)
    status = _read(run_dir.status, Status, problems)
    if status is None or _is_behind(status, last_event(run_dir.events)):
        whole = read_run(run_dir)
        status, alive = whole.status, whole.liveness
        problems = list(whole.problems)
    else:
        alive = _liveness(run_dir, manifest, status, terminal=status.state != "running", problems=problems)
    return RunSummary(
        run=run_dir,
        run_id=manifest.run_id if manifest else run_dir.root.name,
        created_at=manifest.created_at if manifest else None,
        status=status,
        liveness=alive,
        problems=tuple(problems),
    )


def _is_behind(status: Status, last: Event | None) -> bool:
    """Whether status.json misses that the run began or ended: its writer ended between the event and the file."""
    return (
        last is not None
        and last.event in _RUN_ENDS_OR_BEGINS
        and (last.event in TERMINAL) != (status.state != "running")
    )


def find_run(state_root: Path, name: str | None = None) -> RunDir:
    """The run of this name, or the newest. Raises InputWrong naming the runs that there are."""
    if name is not None and folder(name) is None and _is_run(RunDir(state_root / name)):
        return RunDir(state_root / name)
    there_are = list_runs(state_root)
    if name is None and there_are:
        return there_are[0].run
    known = [summary.run_id for summary in there_are]
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    there = f"there are: {', '.join(known[:_LISTED])}{more}" if known else "there is none"
    raise InputWrong(f"{'no run' if name is None else f'no run {name!r}'} in {state_root}; {there}")


def rebuild_status(run_dir: RunDir) -> Status:
    """Write status.json anew from manifest and events. Raises InputWrong for a run that a living process owns, or whose
    manifest cannot be read."""
    with OwnerLock.take(run_dir, announce=False):
        state = read_run(run_dir)
        if state.manifest is None:
            raise InputWrong(f"{run_dir.manifest}: cannot be read; without it there is no status to rebuild")
        fold = Fold(state.manifest)
        for event in state.events:
            fold.apply(event)
        write_atomic(run_dir.status, to_json(fold.status()))
        return fold.status()
