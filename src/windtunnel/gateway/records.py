"""An attempt's `wire.ndjson`: append the gateway's records and keep the counts that bounds are checked against."""

from __future__ import annotations

import os
from pathlib import Path

from windtunnel.domain.digest import to_line
from windtunnel.domain.role import Bounds
from windtunnel.domain.wire import CallEnded, CallRefused, CallStarted, Record, Tokens
from windtunnel.store.files import append_line, repair_tail
from windtunnel.store.wire import read_wire

__all__ = ["RoleUse", "WireLog", "bound_reached"]

_REFUSALS_WRITTEN = 1000  # a subject that is refused in a loop must not fill the disk; all refusals are counted


class RoleUse:
    """What a role has used so far: calls begun, tokens told by the provider, calls in flight."""

    def __init__(self) -> None:
        self.calls = 0
        self.tokens = 0
        self.in_flight = 0


def bound_reached(bounds: Bounds, use: RoleUse) -> str | None:
    """Which bound forbids one more call, as text; None when it may be made. Tokens count cached input too."""
    checks = (
        ("max_calls", bounds.max_calls, use.calls),
        ("max_tokens", bounds.max_tokens, use.tokens),
        ("max_concurrency", bounds.max_concurrency, use.in_flight),
    )
    return next((f"{name} {limit}" for name, limit, used in checks if limit is not None and used >= limit), None)


class WireLog:
    """Appends whole lines, one write each. Opening an existing file takes its counts over.

    `broken`: a record could not be written (the disk is full), so the file does not tell everything. `cut`: calls
    that a former gateway process began and whose end it never wrote.
    """

    def __init__(self, path: Path) -> None:
        repair_tail(path)
        self._uses: dict[str, RoleUse] = {}
        self._open: set[str] = set()
        self._stopped = False
        self.calls = self.refused = 0
        self.broken = False
        for record in read_wire(path):
            self._count(record)
        self.cut = len(self._open)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.fchmod(self._fd, 0o644)

    def use(self, role: str) -> RoleUse:
        """The counts of a role."""
        return self._uses.setdefault(role, RoleUse())

    def next_call(self) -> str:
        """The name of the next call, unique in this file."""
        return f"call-{self.calls + 1}"

    def append(self, record: Record) -> None:
        """Write and count a record. Raises OSError when it cannot be written. After `stop` nothing is written."""
        if self._stopped:
            return
        if not (isinstance(record, CallRefused) and self.refused >= _REFUSALS_WRITTEN):
            try:
                append_line(self._fd, to_line(record), durable=False)
            except OSError:
                self.broken = True
                raise
        self._count(record)

    def _count(self, record: Record) -> None:
        if isinstance(record, CallStarted):
            self.calls += 1
            self.use(record.role).calls += 1
            self._open.add(record.call)
        elif isinstance(record, CallEnded):
            self.use(record.role).tokens += _sum(record.tokens)
            self._open.discard(record.call)
        else:
            self.refused += 1

    def stop(self) -> None:
        """Write no more. Calls still open stay without an end, which is what a later reader must see."""
        if not self._stopped:
            self._stopped = True
            os.fsync(self._fd)
            os.close(self._fd)


def _sum(tokens: Tokens | None) -> int:
    if tokens is None:
        return 0
    return sum(part or 0 for part in (tokens.input, tokens.cache_read, tokens.cache_write, tokens.output))
