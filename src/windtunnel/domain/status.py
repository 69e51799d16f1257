"""status.json: where a run stands, bounded in size; and the reader's question whether anybody is still at it.

The values here are made by the fold (fold.py) from manifest and events. Unknown is None; `heartbeat_at` and the
activity of cells come from the living writer and are the only things that events do not tell.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from windtunnel.domain.event_fields import Drift
from windtunnel.domain.outcome import Reason
from windtunnel.domain.outcome import Status as OutcomeStatus
from windtunnel.domain.wire import RoleUsage

__all__ = [
    "RECENT",
    "Active",
    "Counts",
    "Finished",
    "Halt",
    "KnownCost",
    "Liveness",
    "Quota",
    "RunState",
    "Stage",
    "Status",
    "liveness",
    "moment",
]

RunState = Literal["running", "paused", "halted", "failed", "completed"]
Stage = Literal["starting", "preflight", "batch", "quota_wait", "draining", "done"]
Liveness = Literal["live", "stalled", "crashed", "finished"]

RECENT = 30  # how many finished cells status.json names
_STALE_INTERVALS = 3
_SHORTEST_INTERVAL_S = 1.0  # status.json is written at most once a second


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Every planned cell is in exactly one place: planned = reused + pending + running + valid + invalid + missing.

    `retried`: attempts that were followed by another one of the same cell in the same go."""

    planned: int
    reused: int
    pending: int
    running: int
    valid: int
    invalid: int
    missing: int
    retried: int
    preflight_total: int
    preflight_passed: int
    preflight_failed: int

    @property
    def finished(self) -> int:
        """Cells with nothing left to do for them in this go."""
        return self.reused + self.valid + self.invalid + self.missing


class Active(msgspec.Struct, frozen=True, kw_only=True):
    """A cell at work. `since`: when its phase began; `last_activity_at`: a sign of life of the subject or a phase."""

    cell_id: str
    attempt: int | None = None
    phase: str | None = None
    since: str
    last_activity_at: str
    activity: str | None = None


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    cell_id: str
    status: OutcomeStatus
    reason: Reason
    reward: float | None
    attempts: int | None
    cost_usd: float | None
    finished_at: str


class KnownCost(msgspec.Struct, frozen=True, kw_only=True):
    """`known`: USD of all attempts whose cost is known, None when none is; `unknown_cells`: cells with an attempt
    whose cost is not."""

    known: float | None = None
    unknown_cells: int = 0


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    provider: str | None = None
    windows: Any = None
    waiting_until: str | None = None


class Halt(msgspec.Struct, frozen=True, kw_only=True):
    at: str
    reason: str | None = None
    detail: str | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """`seq`: the last event that is in here. `reason`, `detail`: why the run is paused, halted or failed. `pid`,
    `start_time`, `host`, `boot_id`: the owner; a pid means something only together with the other three."""

    schemaVersion: int = 1
    run_id: str
    plan_identity: str
    seq: int
    state: RunState
    stage: Stage
    reason: str | None
    detail: str | None
    started_at: str | None
    updated_at: str | None
    heartbeat_at: str | None
    pid: int | None
    start_time: float | None
    host: str | None
    boot_id: str | None
    resumes: int
    torn_bytes: int
    counts: Counts
    by_reason: dict[str, int]
    active: tuple[Active, ...]
    recent_finished: tuple[Finished, ...]
    usage: dict[str, RoleUsage]
    cost: KnownCost
    spent: float | None = None
    cap: float | None = None
    eta_s: float | None = None
    quota: Quota | None = None
    drift: tuple[Drift, ...] = ()
    halt: Halt | None = None


def moment(text: str) -> datetime:
    """A time of ours as a value. Raises ValueError for anything that is not an ISO time in UTC (a naive one is not)."""
    found = datetime.fromisoformat(text)
    offset = found.utcoffset()
    if offset is None or offset.total_seconds() != 0:
        raise ValueError(f"{text!r} is not a time in UTC")
    return found.astimezone(UTC)


def _is_fresh(heartbeat_at: str | None, now: str, interval_s: float) -> bool:
    if heartbeat_at is None:
        return False
    age = (moment(now) - moment(heartbeat_at)).total_seconds()
    # A heartbeat far in the future says no more about this moment than one far in the past.
    return abs(age) <= _STALE_INTERVALS * max(interval_s, _SHORTEST_INTERVAL_S)


def liveness(
    status: Status | None, *, now: str, interval_s: float, owner_alive: bool | None, same_host: bool, terminal: bool
) -> Liveness:
    """Is anybody still at it?

    finished: the last word of the log is one that ends a run. crashed: it is not, and the owner is gone (known on its
    own host and boot only, whatever the heartbeat says). live: a fresh heartbeat. stalled: none.
    `owner_alive` None: cannot be told; it is not looked at for another host. Raises ValueError for a heartbeat that is
    no UTC time.
    """
    if terminal:
        return "finished"
    if same_host and owner_alive is False:
        return "crashed"
    heartbeat = None if status is None else status.heartbeat_at
    return "live" if _is_fresh(heartbeat, now, interval_s) else "stalled"
