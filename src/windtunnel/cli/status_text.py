"""The text of `status`: what the files say, line by line; every line that claims something can be traced to a file."""

from __future__ import annotations

from collections.abc import Iterator

from windtunnel.domain.event_fields import Drift
from windtunnel.domain.plain_text import plain_line
from windtunnel.domain.status import Active, Counts, Finished, Status
from windtunnel.domain.tracker import cell_words, usd
from windtunnel.domain.wire import RoleUsage
from windtunnel.store.runs import RunState

__all__ = ["counts_words", "run_lines"]

_RECENT = 10
_PROBLEMS = 20
_SEEN = {
    "live": "its process wrote a heartbeat lately",
    "stalled": "no recent heartbeat, and its process is not known to be gone",
    "crashed": "its process is gone and the log has no end; the same command resumes it",
    "finished": "the log says how it ended",
}


def counts_words(counts: Counts) -> str:
    """`5 valid, 1 invalid, 2 reused of 12`; what is zero is left out, the planned number never."""
    names = ("valid", "invalid", "missing", "reused", "running", "pending")
    told = [f"{getattr(counts, name)} {name}" for name in names if getattr(counts, name)]
    return f"{', '.join(told) or 'none'} of {counts.planned}"


def run_lines(state: RunState) -> Iterator[str]:
    """The lines of `windtunnel status`."""
    status = state.status or state.status_on_disk
    yield f"run        {plain_line(state.run_id)}"
    yield f"seen as    {state.liveness}: {_SEEN[state.liveness]}"
    if status is None:
        yield "state      unknown: neither manifest and events nor status.json can be read"
    else:
        yield from _status_lines(status)
    for problem in state.problems[:_PROBLEMS]:
        yield f"problem    {plain_line(problem)}"
    if len(state.problems) > _PROBLEMS:
        yield f"problem    and {len(state.problems) - _PROBLEMS} more"
    yield f"evidence   {state.run.events}, {state.run.status}"


def _status_lines(status: Status) -> Iterator[str]:
    why = ": ".join(plain_line(part) for part in (status.reason, status.detail) if part)
    yield f"state      {status.state} ({status.stage}){f': {why}' if why else ''}"
    yield f"plan       {status.plan_identity}"
    yield f"started    {_known(status.started_at)}, resumed {status.resumes} times"
    yield f"last event {_known(status.updated_at)}, heartbeat {_known(status.heartbeat_at)}"
    yield f"cells      {counts_words(status.counts)}; {status.counts.retried} attempts were retried"
    yield (
        f"preflight  {status.counts.preflight_passed} passed, {status.counts.preflight_failed} failed "
        f"of {status.counts.preflight_total}"
    )
    if status.by_reason:
        yield "reasons    " + ", ".join(f"{reason} {n}" for reason, n in status.by_reason.items())
    yield f"cost       {usd(status.cost.known)}; unknown for {status.cost.unknown_cells} cells"
    yield from (_usage_line(role, used) for role, used in status.usage.items())
    yield from (_drift_line(drift) for drift in status.drift)
    yield from (_active_line(cell) for cell in status.active)
    yield from (_finished_line(cell) for cell in status.recent_finished[-_RECENT:])


def _known(text: str | None) -> str:
    return text or "unknown"


def _usage_line(role: str, used: RoleUsage) -> str:
    tokens = used.tokens
    names = ("input", "cache_read", "cache_write", "output", "reasoning")
    told = ", ".join(f"{n} {v if (v := getattr(tokens, n)) is not None else 'unknown'}" for n in names)
    return (
        f"usage      {plain_line(role)}: {used.calls} calls ({used.calls_unknown} of unknown usage, "
        f"{used.calls_failed} failed); tokens: {told}"
    )


def _drift_line(drift: Drift) -> str:
    told = f"{drift.what} ({drift.where}): planned {drift.approved}, now {drift.observed}"
    return f"drift      {plain_line(told)}"


def _active_line(cell: Active) -> str:
    attempt = "" if cell.attempt is None else f" attempt {cell.attempt}"
    doing = f" ({plain_line(cell.activity)})" if cell.activity else ""
    return (
        f"active     {plain_line(cell_words(cell.cell_id))}{attempt}, {cell.phase or 'claimed'} since {cell.since}, "
        f"last sign of life {cell.last_activity_at}{doing}"
    )


def _finished_line(cell: Finished) -> str:
    reward = f"reward={cell.reward:.3f}" if cell.reward is not None else f"reason={cell.reason}"
    return (
        f"finished   {cell.finished_at} {plain_line(cell_words(cell.cell_id))}  {cell.status} {reward} "
        f"cost={usd(cell.cost_usd)}"
    )
