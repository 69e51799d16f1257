"""The own fields of every kind of event, typed. The log is flat on disk: these stand beside seq, ts, event, run_id.

The fold and the JSON Schema of `events.ndjson` are made from this table. Everything a writer may not know is None.
`cell` is a cell id, `task/config/rep0`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windtunnel.domain.events import Kind
from windtunnel.domain.outcome import Reason, Status
from windtunnel.domain.result import Usage

__all__ = [
    "CLAIMED",
    "FIELDS",
    "AttemptFinished",
    "AttemptPhase",
    "AttemptStarted",
    "CellFinished",
    "CellSkipped",
    "CellStarted",
    "ControlReceived",
    "Drift",
    "Fields",
    "PreflightFinished",
    "PreflightStarted",
    "QuotaWait",
    "RunBegan",
    "RunEnded",
    "SmokeVerdict",
]

# The reason of a cell_skipped that leaves the cell pending: another run works on it and may yet fail.
CLAIMED = "claimed by another run"


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """No field of its own."""


class RunBegan(Fields, frozen=True, kw_only=True):
    """The process that owns the run from now on (added by the log). `torn_bytes`: cut off the logs at this start."""

    pid: int | None = None
    start_time: float | None = None
    host: str | None = None
    boot_id: str | None = None
    torn_bytes: int = 0


class RunEnded(Fields, frozen=True, kw_only=True):
    reason: str | None = None
    detail: str | None = None


class CellStarted(Fields, frozen=True, kw_only=True):
    cell: str


class CellSkipped(Fields, frozen=True, kw_only=True):
    cell: str
    reason: str


class AttemptStarted(Fields, frozen=True, kw_only=True):
    cell: str
    attempt: int


class AttemptPhase(Fields, frozen=True, kw_only=True):
    cell: str
    attempt: int
    phase: str


class AttemptFinished(Fields, frozen=True, kw_only=True):
    """`usage`, `cost_usd`: of this attempt; where it tells them, cell_finished does not count them again."""

    cell: str
    attempt: int
    status: Status
    reason: Reason
    detail: str = ""
    retry: bool = False
    usage: Usage | None = None
    cost_usd: float | None = None


class CellFinished(Fields, frozen=True, kw_only=True):
    """`usage`, `cost_usd`: of the attempt that the result is made from."""

    cell: str
    status: Status
    reason: Reason
    reward: float | None = None
    attempts: int | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    result_path: str | None = None
    result_sha256: str | None = None


class PreflightStarted(Fields, frozen=True, kw_only=True):
    cell: str
    config: str


class PreflightFinished(Fields, frozen=True, kw_only=True):
    cell: str
    config: str
    passed: bool


class SmokeVerdict(Fields, frozen=True, kw_only=True):
    config: str
    cell: str
    verdict_path: str | None = None
    verdict_sha256: str | None = None
    failed: tuple[str, ...] = ()


class FanoutStarted(Fields, frozen=True, kw_only=True):
    cells: int


class Drift(Fields, frozen=True, kw_only=True):
    """An input that is no longer what the plan approved."""

    cell: str | None = None
    what: str
    where: str
    approved: str
    observed: str


class QuotaWait(Fields, frozen=True, kw_only=True):
    provider: str | None = None
    windows: Any = None
    waiting_until: str | None = None


class WatchdogIntervention(Fields, frozen=True, kw_only=True):
    cell: str | None = None
    attempt: int | None = None
    container: str | None = None
    action: str | None = None
    detail: str | None = None


class BreakerOpened(Fields, frozen=True, kw_only=True):
    reason: str


class AttemptAdopted(Fields, frozen=True, kw_only=True):
    cell: str
    attempt: int
    container: str | None = None


class OrphanReaped(Fields, frozen=True, kw_only=True):
    what: str
    id: str


class ControlReceived(Fields, frozen=True, kw_only=True):
    """`control`: stop, stop-now, halt or clear."""

    control: str
    detail: str | None = None


class VerifyFinished(Fields, frozen=True, kw_only=True):
    passed: bool
    path: str | None = None


FIELDS: dict[Kind, type[Fields]] = {
    Kind.RUN_STARTED: RunBegan,
    Kind.RUN_RESUMED: RunBegan,
    Kind.RUN_PAUSED: RunEnded,
    Kind.RUN_COMPLETED: RunEnded,
    Kind.RUN_FAILED: RunEnded,
    Kind.RUN_HALTED: RunEnded,
    Kind.PREFLIGHT_STARTED: PreflightStarted,
    Kind.PREFLIGHT_FINISHED: PreflightFinished,
    Kind.SMOKE_PASSED: SmokeVerdict,
    Kind.SMOKE_FAILED: SmokeVerdict,
    Kind.FANOUT_STARTED: FanoutStarted,
    Kind.CELL_STARTED: CellStarted,
    Kind.ATTEMPT_STARTED: AttemptStarted,
    Kind.ATTEMPT_PHASE: AttemptPhase,
    Kind.ATTEMPT_FINISHED: AttemptFinished,
    Kind.CELL_FINISHED: CellFinished,
    Kind.CELL_SKIPPED: CellSkipped,
    Kind.LAUNCH_INPUT_DRIFT: Drift,
    Kind.QUOTA_WAIT: QuotaWait,
    Kind.QUOTA_RESUMED: Fields,
    Kind.WATCHDOG_INTERVENTION: WatchdogIntervention,
    Kind.BREAKER_OPENED: BreakerOpened,
    Kind.ATTEMPT_ADOPTED: AttemptAdopted,
    Kind.ORPHAN_REAPED: OrphanReaped,
    Kind.CONTROL_RECEIVED: ControlReceived,
    Kind.VERIFY_FINISHED: VerifyFinished,
}
