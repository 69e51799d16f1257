"""Read `events.ndjson` as it is: whole lines in order, and by name everything that is wrong with the rest."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.domain.digest import decode, to_line
from windtunnel.domain.events import Event
from windtunnel.store.files import read_lines

__all__ = ["EventsRead", "event_line", "last_event", "read_events"]

_OWN = ("seq", "ts", "event", "run_id")
_TAIL_BYTES = 256 * 1024
_fast = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True)
class EventsRead:
    """`torn_bytes`: after the last line end. `errors`: lines that are no event, gaps in `seq`, other runs' events."""

    events: tuple[Event, ...]
    torn_bytes: int
    errors: tuple[str, ...]


def event_line(event: Event) -> bytes:
    """The event's flat line. Raises ValueError for NaN, Infinity and for a field that would hide one of the four."""
    if not event.fields.keys().isdisjoint(_OWN):
        raise ValueError(f"event {event.event}: a field may not be named like one of {', '.join(_OWN)}")
    return to_line({"seq": event.seq, "ts": event.ts, "event": event.event, "run_id": event.run_id, **event.fields})


def read_events(path: Path, run_id: str | None = None) -> EventsRead:
    """All events of a log; a log that is not there is an empty one. `run_id` None: any. Raises OSError."""
    events: list[Event] = []
    errors: list[str] = []
    size = read = 0
    if path.exists():
        size = path.stat().st_size
        for number, line in enumerate(read_lines(path), 1):
            read += len(line)
            try:
                event = _parse(line)
            except (ValueError, KeyError, RecursionError, msgspec.MsgspecError) as error:
                errors.append(f"line {number} is no event: {error}")
                continue
            errors += _doubts(event, number, events[-1].seq if events else 0, run_id)
            events.append(event)
    return EventsRead(tuple(events), max(0, size - read), tuple(errors))


def last_event(path: Path) -> Event | None:
    """The last whole event of a log, from its last bytes only; None when there is none to be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read().split(b"\n")[:-1]
        return _parse(lines[-1]) if lines else None
    except (OSError, ValueError, KeyError, RecursionError, msgspec.MsgspecError):
        return None


def _parse(line: bytes) -> Event:
    try:
        value = _fast.decode(line)
    except msgspec.DecodeError:  # lone surrogates, which are allowed here, or really broken
        value = decode(line, dict)
    seq, ts, kind, run_id = (value.pop(name) for name in _OWN)
    return msgspec.convert({"seq": seq, "ts": ts, "event": kind, "run_id": run_id, "fields": value}, Event)


def _doubts(event: Event, number: int, before: int, run_id: str | None) -> list[str]:
    doubts = []
    if event.seq != before + 1:
        doubts.append(f"line {number}: seq {event.seq} follows {before}")
    if run_id is not None and event.run_id != run_id:
        doubts.append(f"line {number}: of run {event.run_id!r}, not {run_id!r}")
    return doubts
