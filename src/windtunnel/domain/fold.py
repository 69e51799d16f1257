"""Events to status: the one place that says what an event means for where a run stands.

Every planned cell is in exactly one of six states at every prefix of the log, so that the counts always add up. A cell
that is run again moves; it is never counted twice. Nothing here raises for a strange event: it is named in `problems`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Literal, cast

import msgspec

from windtunnel.domain import event_fields as fields_of
from windtunnel.domain.event_fields import CLAIMED, FIELDS
from windtunnel.domain.events import Event, Kind
from windtunnel.domain.manifest import Manifest
from windtunnel.domain.outcome import Reason
from windtunnel.domain.spending import Spending
from windtunnel.domain.status import RECENT, Active, Counts, Finished, Halt, Quota, RunState, Stage, Status

__all__ = ["CellState", "Fold", "fold"]

CellState = Literal["pending", "running", "reused", "valid", "invalid", "missing"]

_PROBLEMS = 20
_DRIFTS = 20


def fold(manifest: Manifest, events: Iterable[Event]) -> Status:
    """The status after these events, in this order."""
    state = Fold(manifest)
    for event in events:
        state.apply(event)
    return state.status()


class Fold:
    """The state of a run while its events are read one by one: `apply` each in order, ask `status` at any time."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._cells: dict[str, CellState] = {cell.cell_id: "pending" for cell in manifest.cells}
        self._counts: Counter[CellState] = Counter({"pending": len(self._cells)})
        self._reasons: dict[str, Reason] = {}
        self._active: dict[str, Active] = {}
        self._recent: deque[Finished] = deque(maxlen=RECENT)
        self._preflight: dict[str, bool] = {}
        self._spending = Spending()
        self._drift: deque[fields_of.Drift] = deque(maxlen=_DRIFTS)
        self._quota: Quota | None = None
        self._halt: Halt | None = None
        self._owner = fields_of.RunBegan(pid=manifest.pid, host=manifest.host, boot_id=manifest.boot_id)
        self._retried = self._resumes = self._torn_bytes = 0
        self._started_at: str | None = None
        self._updated_at: str | None = None
        self._why: tuple[str | None, str | None] = (None, None)
        self.seq = 0
        self.state: RunState = "running"
        self.stage: Stage = "starting"
        self.problems: list[str] = []

    def cell_state(self, cell_id: str) -> CellState | None:
        """Where a planned cell is; None for a cell that the manifest does not have."""
        return self._cells.get(cell_id)

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        self.seq, self._updated_at = event.seq, event.ts
        try:
            own = msgspec.convert(event.fields, FIELDS[event.event])
        except (msgspec.ValidationError, RecursionError) as error:
            self._problem(event, str(error))
            return
        cell = getattr(own, "cell", None)
        if cell is not None and cell not in self._cells:
            self._problem(event, f"cell {cell!r} is not in the manifest")
            return
        handler = _HANDLERS.get(event.event)
        if handler is not None:
            handler(self, event, own)

    def _problem(self, event: Event, what: str) -> None:
        if len(self.problems) < _PROBLEMS:
            self.problems.append(f"event {event.seq} ({event.event}): {what}")

    @property
    def counts(self) -> Counts:
        verdicts = Counter(self._preflight.values())
        states = {str(name): self._counts[name] for name in _STATES}
        return Counts(
            planned=len(self._cells),
            **states,
            retried=self._retried,
            preflight_total=len(self._manifest.preflight),
            preflight_passed=verdicts[True],
            preflight_failed=verdicts[False],
        )

    def status(self) -> Status:
        """The whole as a value; the heartbeat is the last event's time until the writer knows better."""
        return Status(
            run_id=self._manifest.run_id,
            plan_identity=self._manifest.plan_identity,
            seq=self.seq,
            state=self.state,
            stage=self.stage,
            reason=self._why[0],
            detail=self._why[1],
            started_at=self._started_at,
            updated_at=self._updated_at,
            heartbeat_at=self._updated_at,
            pid=self._owner.pid,
            start_time=self._owner.start_time,
            host=self._owner.host,
            boot_id=self._owner.boot_id,
            resumes=self._resumes,
            torn_bytes=self._torn_bytes,
            counts=self.counts,
            by_reason={str(reason): n for reason, n in sorted(Counter(self._reasons.values()).items())},
            active=tuple(self._active.values()),
            recent_finished=tuple(self._recent),
            usage=self._spending.usage,
            cost=self._spending.cost,
            quota=self._quota,
            drift=tuple(self._drift),
            halt=self._halt,
        )

    def _move(self, cell: str, state: CellState, reason: Reason | None = None) -> None:
        self._counts[self._cells[cell]] -= 1
        self._counts[state] += 1
        self._cells[cell] = state
        if reason is None:
            self._reasons.pop(cell, None)
        else:
            self._reasons[cell] = reason
        if state != "running":
            self._active.pop(cell, None)

    def _move_all(self, state: CellState, to: CellState, reason: Reason | None = None) -> None:
        if self._counts[state]:
            for cell in [cell for cell, at in self._cells.items() if at == state]:
                self._move(cell, to, reason)

    def _run_began(self, event: Event, own: fields_of.RunBegan) -> None:
        self._resumes += event.event is Kind.RUN_RESUMED
        self._started_at = self._started_at or event.ts
        self._torn_bytes += own.torn_bytes
        if own.pid is not None:
            self._owner = own
        self.state, self.stage, self._why = "running", "starting", (None, None)
        self._drift.clear()
        self._halt = self._quota = None
        # What was at work is not any more, and what was not reached gets its chance.
        self._move_all("running", "pending")
        self._move_all("missing", "pending")

    def _run_ended(self, event: Event, own: fields_of.RunEnded) -> None:
        self.state, self.stage, self._why = _ENDS[event.event], "done", (own.reason, own.detail)
        if self.state == "paused":
            self._move_all("running", "pending")
            return
        if self.state == "halted":
            self._halt = Halt(at=event.ts, reason=own.reason, detail=own.detail)
        self._move_all("running", "missing", Reason.CANCELLED)
        self._move_all("pending", "missing", Reason.NOT_REACHED)

    def _cell_started(self, event: Event, own: fields_of.CellStarted) -> None:
        self._move(own.cell, "running")
        self._active[own.cell] = Active(cell_id=own.cell, since=event.ts, last_activity_at=event.ts)

    def _cell_skipped(self, event: Event, own: fields_of.CellSkipped) -> None:
        if self._cells[own.cell] != "valid" and own.reason != CLAIMED:
            self._move(own.cell, "reused")

    def _attempt_started(self, event: Event, own: fields_of.AttemptStarted) -> None:
        self._spending.attempt_started(own.cell)
        self._move(own.cell, "running")
        self._active[own.cell] = Active(
            cell_id=own.cell, attempt=own.attempt, since=event.ts, last_activity_at=event.ts
        )

    def _attempt_phase(self, event: Event, own: fields_of.AttemptPhase) -> None:
        if own.cell in self._active:
            self._active[own.cell] = Active(
                cell_id=own.cell, attempt=own.attempt, phase=own.phase, since=event.ts, last_activity_at=event.ts
            )

    def _attempt_finished(self, event: Event, own: fields_of.AttemptFinished) -> None:
        self._retried += own.retry
        if own.usage is not None:
            self._spending.attempt_told(own.cell, own.usage, own.cost_usd)

    def _cell_finished(self, event: Event, own: fields_of.CellFinished) -> None:
        state: CellState = cast(CellState, str(own.status))
        self._move(own.cell, state, own.reason)
        if state != "missing":
            self._spending.cell_told(own.cell, own.usage, own.cost_usd)
        self._recent.append(
            Finished(
                cell_id=own.cell,
                status=own.status,
                reason=own.reason,
                reward=own.reward,
                attempts=own.attempts,
                cost_usd=own.cost_usd,
                finished_at=event.ts,
            )
        )

    def _preflight_started(self, event: Event, own: fields_of.PreflightStarted) -> None:
        self.stage = "preflight"
        self._preflight.pop(own.cell, None)

    def _preflight_finished(self, event: Event, own: fields_of.PreflightFinished) -> None:
        self._preflight[own.cell] = own.passed

    def _fanout_started(self, event: Event, own: fields_of.FanoutStarted) -> None:
        if self.stage != "draining":
            self.stage = "batch"

    def _drifted(self, event: Event, own: fields_of.Drift) -> None:
        self._drift.append(own)

    def _quota_wait(self, event: Event, own: fields_of.QuotaWait) -> None:
        self.stage = "quota_wait"
        self._quota = Quota(provider=own.provider, windows=own.windows, waiting_until=own.waiting_until)

    def _quota_resumed(self, event: Event, own: fields_of.Fields) -> None:
        self.stage = "batch"
        if self._quota is not None:
            self._quota = msgspec.structs.replace(self._quota, waiting_until=None)

    def _control_received(self, event: Event, own: fields_of.ControlReceived) -> None:
        if own.control in {"stop", "stop-now"} and self.state == "running":
            self.stage = "draining"


_STATES: tuple[CellState, ...] = ("reused", "pending", "running", "valid", "invalid", "missing")
_ENDS: dict[Kind, RunState] = {
    Kind.RUN_PAUSED: "paused",
    Kind.RUN_COMPLETED: "completed",
    Kind.RUN_FAILED: "failed",
    Kind.RUN_HALTED: "halted",
}
_HANDLERS: dict[Kind, Callable[[Fold, Event, Any], None]] = {
    Kind.RUN_STARTED: Fold._run_began,
    Kind.RUN_RESUMED: Fold._run_began,
    **dict.fromkeys(_ENDS, Fold._run_ended),
    Kind.CELL_STARTED: Fold._cell_started,
    Kind.CELL_SKIPPED: Fold._cell_skipped,
    Kind.ATTEMPT_STARTED: Fold._attempt_started,
    Kind.ATTEMPT_ADOPTED: Fold._attempt_started,
    Kind.ATTEMPT_PHASE: Fold._attempt_phase,
    Kind.ATTEMPT_FINISHED: Fold._attempt_finished,
    Kind.CELL_FINISHED: Fold._cell_finished,
    Kind.PREFLIGHT_STARTED: Fold._preflight_started,
    Kind.PREFLIGHT_FINISHED: Fold._preflight_finished,
    Kind.FANOUT_STARTED: Fold._fanout_started,
    Kind.LAUNCH_INPUT_DRIFT: Fold._drifted,
    Kind.QUOTA_WAIT: Fold._quota_wait,
    Kind.QUOTA_RESUMED: Fold._quota_resumed,
    Kind.CONTROL_RECEIVED: Fold._control_received,
}
