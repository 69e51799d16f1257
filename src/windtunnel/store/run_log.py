"""The one writer of a run's state: events.ndjson, status.json, run.log and manifest.json.

The events are the truth and are on the platter before the run goes on. status.json is a cache of their fold; run.log is
for people. Neither of the two may stop a run that could write its event.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.domain.digest import to_json
from windtunnel.domain.events import STATE_CHANGING, Event, Kind
from windtunnel.domain.fold import CellState, Fold
from windtunnel.domain.manifest import Manifest
from windtunnel.domain.plain_text import plain_line, plain_text
from windtunnel.domain.status import Active, Status
from windtunnel.domain.tracker import tracker_line
from windtunnel.errors import FileDamaged
from windtunnel.host.clock import monotonic, utc_now
from windtunnel.host.processes import current
from windtunnel.store.event_log import event_line, read_events
from windtunnel.store.files import append_line, read_json, read_lines, repair_tail, sync_directory, write_atomic
from windtunnel.store.layout import RunDir

__all__ = ["RunLog"]

_STATUS_EVERY_S = 1.0
_BEGINS = frozenset({Kind.RUN_STARTED, Kind.RUN_RESUMED})
_ACTIVITY_MAX = 200
_LOOK_BACK = 20  # lines of other words that may stand behind the last event's

OnLine = Callable[[str], object]


class RunLog:
    """Open it only while holding the run's OwnerLock. `on_line` is given every line for people, without its stamp."""

    def __init__(self, run_dir: RunDir, manifest: Manifest, fold: Fold, torn_bytes: int) -> None:
        self._run = run_dir
        self.manifest = manifest
        self.torn_bytes = torn_bytes
        self.on_line: OnLine | None = None
        self._fold = fold
        self._activity: dict[str, tuple[str, str]] = {}
        self._events_fd = _appendable(run_dir.events)
        self._log_fd = _appendable(run_dir.log)
        self._lost_lines = 0
        self._shown = ("", "")
        self._saved_at = float("-inf")
        self._dirty = False

    @classmethod
    def open(cls, run_dir: RunDir, manifest: Manifest, *, on_line: OnLine | None = None) -> RunLog:
        """Start or continue the log of a run: torn tails are cut (and kept beside it), `seq` goes on without a gap.

        An existing manifest stands; the given one is written only where there is none. Raises FileDamaged for a
        manifest or log that is not of this run or cannot be continued, OSError.
        """
        run_dir.root.mkdir(parents=True, exist_ok=True)
        manifest = _settle_manifest(run_dir, manifest)
        torn = _cut(run_dir.events) + _cut(run_dir.log)
        found = read_events(run_dir.events, manifest.run_id)
        if found.errors:
            raise FileDamaged(run_dir.events, found.errors[0], "Run `windtunnel verify` and plan a new run")
        fold = Fold(manifest)
        last: str | None = None
        for event in found.events:
            fold.apply(event)
            last = tracker_line(event, fold.counts) or last
        log = cls(run_dir, manifest, fold, torn)
        log._catch_up(last)
        log.on_line = on_line
        sync_directory(run_dir.root)
        return log

    @property
    def status(self) -> Status:
        """Where the run stands now, with the living process's heartbeat and the cells' last signs of life."""
        status = self._fold.status()
        active = tuple(self._with_activity(cell) for cell in status.active)
        return msgspec.structs.replace(status, heartbeat_at=utc_now(), active=active)

    def cell_state(self, cell_id: str) -> CellState | None:
        """Where the log says that a planned cell is; None for a cell that is not planned."""
        return self._fold.cell_state(cell_id)

    def event(self, kind: Kind, **fields: Any) -> Event:
        """Append one event and take it into the status. Raises OSError when it could not be written; it is then not
        there at all."""
        own = msgspec.to_builtins(self._owner() | fields if kind in _BEGINS else fields, str_keys=True)
        run_id = self.manifest.run_id
        event = Event(seq=self._fold.seq + 1, ts=utc_now(), event=kind, run_id=run_id, fields=own)
        append_line(self._events_fd, event_line(event), durable=kind in STATE_CHANGING)
        self._fold.apply(event)
        text = tracker_line(event, self._fold.counts)
        if text is not None:
            self.line(text)
        self._save()
        return event

    def activity(self, cell_id: str, text: str) -> None:
        """A sign of life of an active cell; kept in memory and shown with the next status.json."""
        self._activity[cell_id] = (utc_now(), plain_line(text)[:_ACTIVITY_MAX])
        self._dirty = True

    def heartbeat(self) -> None:
        """Write status.json now: the run is alive. To be called every progress interval."""
        self._save(now=True)

    def tick(self) -> None:
        """Write status.json if it is behind; to be called about once a second."""
        if self._dirty:
            self._save()

    def progress(self) -> None:
        """One line on where the run stands; to be said every progress interval."""
        counts, active = self._fold.counts, self.status.active
        self.line(
            f"progress: {counts.finished} of {counts.planned} cells; {counts.running} running, "
            f"{counts.pending} pending, {counts.valid} valid, {counts.invalid} invalid, {counts.reused} reused"
            + "".join(f"; {cell.cell_id} {cell.phase or 'starting'}" for cell in active[:4])
        )

    def line(self, text: str) -> None:
        """Say something to people: run.log with a stamp, each line of the text as a line."""
        for said in filter(None, map(plain_line, plain_text(text).split("\n"))):
            self._append(said)
            if self.on_line is not None:
                self.on_line(said)

    def close(self) -> None:
        """Write what status.json lacks and let go of the files; safe to call twice."""
        if self._events_fd >= 0:
            if self._dirty:
                self._save(now=True)
            os.close(self._events_fd)
            os.close(self._log_fd)
            self._events_fd = self._log_fd = -1

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _owner(self) -> dict[str, Any]:
        process = current()
        facts = {"pid": process.pid, "start_time": process.start_time, "boot_id": process.boot_id}
        return facts | {"host": socket.gethostname(), "torn_bytes": self.torn_bytes}

    def _with_activity(self, cell: Active) -> Active:
        at, text = self._activity.get(cell.cell_id, ("", ""))
        if at < cell.last_activity_at:  # the phase's own beginning is the later sign
            return cell
        return msgspec.structs.replace(cell, last_activity_at=at, activity=text)

    def _catch_up(self, last: str | None) -> None:
        """A kill between an event and its line leaves the last line out: say it now."""
        told = [line.split(b" ", 1)[-1].rstrip(b"\n") for line in read_lines(self._run.log)]
        if last is not None and last.encode("utf-8", "replace") not in told[-_LOOK_BACK:]:
            self._append(last)

    def _append(self, text: str) -> None:
        """A full disk costs lines, not the run; the next line that fits says how many."""
        lost = f"({self._lost_lines} lines before this one could not be written) " if self._lost_lines else ""
        try:
            append_line(self._log_fd, f"{utc_now()} {lost}{text}\n".encode(), durable=False)
            self._lost_lines = 0
        except OSError:
            self._lost_lines += 1

    def _save(self, *, now: bool = False) -> None:
        """status.json: at once when state or stage changed (durable), else at most once a second."""
        shown = (self._fold.state, self._fold.stage)
        changed = shown != self._shown
        if not (changed or now) and monotonic() - self._saved_at < _STATUS_EVERY_S:
            self._dirty = True
            return
        # It can be rebuilt from the events at any time, and a stale heartbeat shows: no reason to stop the run.
        with contextlib.suppress(OSError):
            write_atomic(self._run.status, to_json(self.status), durable=changed)
            self._shown, self._saved_at, self._dirty = shown, monotonic(), False


def _settle_manifest(run_dir: RunDir, manifest: Manifest) -> Manifest:
    try:
        stored = read_json(run_dir.manifest, Manifest)
    except FileNotFoundError:
        write_atomic(run_dir.manifest, to_json(manifest))
        return manifest
    of, wanted = (f"run {m.run_id} with plan {m.plan_identity}" for m in (stored, manifest))
    if of != wanted:
        raise FileDamaged(run_dir.manifest, f"it is of {of}, not of {wanted}", "Plan again with another --run-id")
    return stored


def _cut(path: Path) -> int:
    """Cut a torn tail off a log; its bytes are kept in `<name>.torn` where the disk has room for them."""
    with contextlib.suppress(OSError):
        data = path.read_bytes()
        if tail := data[data.rfind(b"\n") + 1 :]:
            with path.with_name(path.name + ".torn").open("ab") as kept:
                kept.write(tail + b"\n")
    return repair_tail(path)


def _appendable(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
