"""Verify the two logs: the events are whole and in order, fan-out came after smoke, and run.log says the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from windtunnel.domain.contract import bounded
from windtunnel.domain.events import Event, Kind
from windtunnel.domain.fold import Fold
from windtunnel.domain.manifest import Manifest
from windtunnel.domain.plan import Plan
from windtunnel.domain.tracker import tracker_line
from windtunnel.domain.verification import Claim, claim
from windtunnel.store.files import read_lines
from windtunnel.store.layout import RunDir
from windtunnel.store.runs import RunState

__all__ = ["event_claims"]

_STAMP = re.compile(r"\S+Z ")
_LOST = re.compile(r"\((\d+) lines before this one could not be written\) ")
# What no line of run.log may say without an event.
_CLAIMING = re.compile(r"\[\d+/\d+\] |smoke passed: |smoke failed: |fan-out began: |run completed")


def event_claims(state: RunState, manifest: Manifest, plan: Plan, *, ended: bool) -> Iterator[Claim]:
    """The claims about events.ndjson and run.log."""
    yield _whole(state, ended=ended)
    log = list(_log(state.run))
    fan_out = _fan_out(state, plan, log, ended=ended)
    if fan_out is not None:
        yield fan_out
    yield _tracker(state, manifest, log, ended=ended)


def _whole(state: RunState, *, ended: bool) -> Claim:
    name = "events are gapless, in order and of this run"
    torn = f"a torn last line of {state.torn_bytes} bytes" if ended and state.torn_bytes else ""
    broken = state.gaps[0] if state.gaps else torn
    starts = [event for event in state.events if event.event is Kind.RUN_STARTED]
    if not broken and (len(starts) != 1 or state.events[0] is not starts[0]):
        broken = f"run_started {len(starts)} time(s), first event {state.events[0].event if state.events else 'none'}"
    return claim(
        name,
        not broken,
        expected="seq from 1 without a gap, run_started once and first",
        found=bounded(broken) or f"seq 1 to {len(state.events)}",
        evidence=[state.run.events],
    )


def _fan_out(state: RunState, plan: Plan, log: Sequence[str], *, ended: bool) -> Claim | None:
    """None while there is nothing to be said: the run goes on and fan-out has not begun."""
    name, evidence = "fan-out came after smoke", [state.run.events, state.run.log]
    began = next((event for event in state.events if event.event is Kind.FANOUT_STARTED), None)
    if began is None:
        early = next(_batch_starts(state.events, plan), None)
        if not ended and early is None:
            return None
        found = "no fan-out" if early is None else f"no fan-out, but cell {early.fields['cell']} started"
        return claim(name, False, expected="fanout_started", found=found, evidence=evidence)
    broken = _before_smoke(state.events, plan, began) or _log_order(log, plan)
    at = f"fanout_started is seq {began.seq}, after {len(plan.preflight)} smoke cell(s) passed, in both logs"
    return claim(name, not broken, expected="smoke of each config first", found=broken or at, evidence=evidence)


def _batch_starts(events: Sequence[Event], plan: Plan) -> Iterator[Event]:
    smoke = {entry.cell.id for entry in plan.preflight}
    return (e for e in events if e.event is Kind.CELL_STARTED and e.fields.get("cell") not in smoke)


def _before_smoke(events: Sequence[Event], plan: Plan, began: Event) -> str:
    passed = {e.fields.get("cell") for e in events if e.event is Kind.SMOKE_PASSED and e.seq < began.seq}
    missing = [entry.cell.id for entry in plan.preflight if entry.cell.id not in passed]
    if missing:
        return f"fanout_started is seq {began.seq}, without smoke_passed of {', '.join(missing[:3])}"
    early = next((event for event in _batch_starts(events, plan) if event.seq < began.seq), None)
    return f"cell {early.fields['cell']} started at seq {early.seq}, fan-out at {began.seq}" if early else ""


def _log_order(log: Sequence[str], plan: Plan) -> str:
    began = next((n for n, line in enumerate(log) if line.startswith("fan-out began: ")), None)
    if began is None:
        return "run.log does not say that fan-out began"
    for entry in plan.preflight:
        words = f"smoke passed: config {entry.cell.config}, cell {entry.cell.id} "
        if not any(line.startswith(words) for line in log[:began]):
            return f"run.log does not say before fan-out that smoke of {entry.cell.id} passed"
    return ""


def _log(run: RunDir) -> Iterator[str]:
    """The lines of run.log without their stamps."""
    if run.log.is_file():
        for line in read_lines(run.log):
            yield _STAMP.sub("", line.decode("utf-8", "replace").rstrip("\n"), count=1)


def _tracker(state: RunState, manifest: Manifest, log: Sequence[str], *, ended: bool) -> Claim:
    name, evidence = "tracker lines of run.log equal the events", [state.run.log, state.run.events]
    lost = sum(int(match[1]) for line in log if (match := _LOST.match(line)))
    said = [_LOST.sub("", line, count=1) for line in log]
    missing, strange, told = [], "", 0
    for text, may_lack in _expected(state, manifest, ended=ended):
        at = _find(said, text, told)
        if at is not None:
            strange = strange or next(filter(_CLAIMING.match, said[told:at]), "")
            told = at + 1
        elif not may_lack:
            missing.append(text)
            if len(missing) > lost:
                break
    strange = strange or next(filter(_CLAIMING.match, said[told:]), "")
    if len(missing) <= lost and not strange:
        return claim(name, True, expected="", found=f"{told} lines of run.log", evidence=evidence)
    expected = missing[0] if missing else "no line without an event"
    return claim(name, False, expected=bounded(expected), found=bounded(strange or "no such line"), evidence=evidence)


def _find(lines: Sequence[str], text: str, start: int) -> int | None:
    return next((n for n in range(start, len(lines)) if lines[n] == text), None)


def _expected(state: RunState, manifest: Manifest, *, ended: bool) -> Iterator[tuple[str, bool]]:
    """What run.log must say, and whether a crash may have cost the line: it is written right after its event, so that
    only the last one before a resume (or of a run that goes on) can be lacking."""
    fold, held = Fold(manifest), ""
    for event in state.events:
        fold.apply(event)
        text = tracker_line(event, fold.counts)
        if text is None:
            continue
        if held:
            yield held, event.event is Kind.RUN_RESUMED
        held = text
    if held:
        yield held, not ended
