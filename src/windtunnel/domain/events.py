"""The event log's vocabulary: `events.ndjson`, append-only, `seq` from 1 without gaps."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

__all__ = ["STATE_CHANGING", "TERMINAL", "Event", "Kind"]


class Kind(StrEnum):
    RUN_STARTED = "run_started"
    RUN_RESUMED = "run_resumed"
    RUN_PAUSED = "run_paused"
    RUN_COMPLETED = "run_completed"
    RUN_FAILED = "run_failed"
    RUN_HALTED = "run_halted"
    PREFLIGHT_STARTED = "preflight_started"
    PREFLIGHT_FINISHED = "preflight_finished"
    SMOKE_PASSED = "smoke_passed"
    SMOKE_FAILED = "smoke_failed"
    FANOUT_STARTED = "fanout_started"
    CELL_STARTED = "cell_started"
    ATTEMPT_STARTED = "attempt_started"
    ATTEMPT_PHASE = "attempt_phase"
    ATTEMPT_FINISHED = "attempt_finished"
    CELL_FINISHED = "cell_finished"
    CELL_SKIPPED = "cell_skipped"
    LAUNCH_INPUT_DRIFT = "launch_input_drift"
    QUOTA_WAIT = "quota_wait"
    QUOTA_RESUMED = "quota_resumed"
    WATCHDOG_INTERVENTION = "watchdog_intervention"
    BREAKER_OPENED = "breaker_opened"
    ATTEMPT_ADOPTED = "attempt_adopted"
    ORPHAN_REAPED = "orphan_reaped"
    CONTROL_RECEIVED = "control_received"
    VERIFY_FINISHED = "verify_finished"


TERMINAL = frozenset({Kind.RUN_COMPLETED, Kind.RUN_FAILED, Kind.RUN_PAUSED, Kind.RUN_HALTED})
# Everything but phases and chatter must be on the platter before the run goes on.
STATE_CHANGING = frozenset(Kind) - {Kind.ATTEMPT_PHASE}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One line. `ts`: UTC with milliseconds and Z. `fields`: the event's own facts, flattened on disk; typed in
    event_fields.py, from which the strict JSON Schema is made.

    Fields by kind (cell = cell id `task/config/rep0`):
    cell_started, cell_skipped{reason}, attempt_started{attempt}, attempt_phase{attempt, phase},
    attempt_finished{attempt, status, reason, retry}, cell_finished{status, reason, reward, attempts,
    usage, cost_usd, result_path, result_sha256}, preflight_started{cell, config},
    preflight_finished{cell, config, passed},
    smoke_passed / smoke_failed{config, cell, verdict_path, failed}, fanout_started{cells},
    run_failed{reason}, run_paused{reason}, launch_input_drift{what, where, approved, observed},
    orphan_reaped{what, id}, verify_finished{passed, path}.
    """

    seq: int
    ts: str
    event: Kind
    run_id: str
    fields: dict[str, Any] = {}
