"""The tracker: one line for people for each event that they want to see, in run.log and on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windtunnel.domain.event_fields import CLAIMED
from windtunnel.domain.events import Event, Kind
from windtunnel.domain.plain_text import plain_line
from windtunnel.domain.status import Counts

__all__ = ["cell_words", "tracker_line", "usd"]


def usd(amount: float | None) -> str:
    """`$0.0312`, or `unknown`: never a zero for what nobody told."""
    return "unknown" if amount is None else f"${amount:.4f}"


def cell_words(cell_id: str) -> str:
    """`task / config / rep0`"""
    return " / ".join(cell_id.rsplit("/", 2))


def tracker_line(event: Event, counts: Counts) -> str | None:
    """What the event is told as, None when it is not (phases, attempts). `counts`: after the event."""
    words = _WORDS.get(event.event)
    text = words(event.fields, counts) if words else None
    return None if text is None else plain_line(text)


def _finished(own: dict[str, Any], counts: Counts) -> str:
    reward = own.get("reward")
    said = f"reward={reward:.3f}" if isinstance(reward, int | float) else f"reason={own.get('reason')}"
    tries = f" attempts={own['attempts']}" if (own.get("attempts") or 1) > 1 else ""
    return (
        f"[{counts.finished}/{counts.planned}] {cell_words(str(own.get('cell')))}  {own.get('status')} {said}"
        f" cost={usd(own.get('cost_usd'))}{tries}"
    )


def _skipped(own: dict[str, Any], counts: Counts) -> str | None:
    # Reused cells are counted at the start; ten thousand lines that say so would hide the rest.
    if own.get("reason") == "reused":
        return None
    seen = f"[{counts.finished}/{counts.planned}] " if own.get("reason") != CLAIMED else ""
    return f"{seen}{cell_words(str(own.get('cell')))}  skipped: {own.get('reason')}"


def _smoke(passed: bool) -> Callable[[dict[str, Any], Counts], str]:
    def words(own: dict[str, Any], counts: Counts) -> str:
        failed = own.get("failed") or ()
        why = "" if passed else f"; failed: {', '.join(map(str, failed))}"
        verdict = "passed" if passed else "failed"
        return f"smoke {verdict}: config {own.get('config')}, cell {own.get('cell')} ({own.get('verdict_path')}){why}"

    return words


def _run(word: str) -> Callable[[dict[str, Any], Counts], str]:
    def words(own: dict[str, Any], counts: Counts) -> str:
        why = ": ".join(str(own[key]) for key in ("reason", "detail") if own.get(key))
        told = (
            f"{counts.planned} cells: {counts.reused} reused, {counts.valid} valid, {counts.invalid} invalid, "
            f"{counts.missing} missing, {counts.pending} pending"
        )
        return f"run {word}{f' ({why})' if why else ''}; {told}"

    return words


_WORDS: dict[Kind, Callable[[dict[str, Any], Counts], str | None]] = {
    Kind.CELL_FINISHED: _finished,
    Kind.CELL_SKIPPED: _skipped,
    Kind.SMOKE_PASSED: _smoke(True),
    Kind.SMOKE_FAILED: _smoke(False),
    Kind.FANOUT_STARTED: lambda own, counts: f"fan-out began: {own.get('cells')} cells",
    Kind.RUN_STARTED: _run("started"),
    Kind.RUN_RESUMED: _run("resumed"),
    Kind.RUN_PAUSED: _run("paused"),
    Kind.RUN_COMPLETED: _run("completed"),
    Kind.RUN_FAILED: _run("failed"),
    Kind.RUN_HALTED: _run("halted"),
    Kind.LAUNCH_INPUT_DRIFT: lambda own, counts: (
        f"drift: {own.get('what')} ({own.get('where')}): planned {own.get('approved')}, now {own.get('observed')}"
    ),
    Kind.BREAKER_OPENED: lambda own, counts: f"breaker opened: {own.get('reason')}",
    Kind.ORPHAN_REAPED: lambda own, counts: f"removed what an earlier start left: {own.get('what')} {own.get('id')}",
    Kind.CONTROL_RECEIVED: lambda own, counts: f"control received: {own.get('control')}",
    Kind.QUOTA_WAIT: lambda own, counts: f"waiting for quota until {own.get('waiting_until') or 'unknown'}",
    Kind.QUOTA_RESUMED: lambda own, counts: "quota free again",
}
