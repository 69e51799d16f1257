"""Verify the smoke gate: every config has a verdict of its own, it still holds, and it was there first.

A verdict file says `passed`; that is a claim. What counts is that the same assertions hold again on the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from windtunnel.domain.cell import model_leaf
from windtunnel.domain.contract import Contract, Verdict, bounded, parse_contract
from windtunnel.domain.difference import flatten
from windtunnel.domain.digest import to_json
from windtunnel.domain.events import Event, Kind
from windtunnel.domain.plan import ConfigPlan, Plan
from windtunnel.domain.verification import Claim, claim
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.steps.judge import assess
from windtunnel.store.files import read_json, sha256_file
from windtunnel.store.layout import CellDir, RunDir, cell_dir

__all__ = ["smoke_claims"]


@dataclass(frozen=True)
class _Kept:
    """A verdict file in the tree. `verdict` None: it cannot be read, `problem` says why. `own`: of this run's words."""

    path: Path
    cell: CellDir
    verdict: Verdict | None
    own: bool
    problem: str = ""


@dataclass(frozen=True)
class _Asked:
    """A config whose smoke is asked for. `first`: the first start of a batch cell of it; `planned`: it has a smoke cell
    in this run, so that only a verdict of this run counts."""

    run: RunDir
    plan: Plan
    config: ConfigPlan
    events: Sequence[Event]
    first: Event | None
    planned: bool


def smoke_claims(run: RunDir, plan: Plan, events: Sequence[Event], *, ended: bool) -> list[Claim]:
    """One line per config that the plan executes. On a run that goes on, a config whose smoke is not judged yet and
    none of whose batch cells started is left out."""
    executed = [config for config in plan.configs if config.executed]
    found = (_of_config(run, plan, config, events, ended=ended) for config in executed)
    return [line for line in found if line is not None]


def _of_config(run: RunDir, plan: Plan, config: ConfigPlan, events: Sequence[Event], *, ended: bool) -> Claim | None:
    name = f"smoke of config {config.name}"
    planned = any(entry.cell.config == config.name for entry in plan.preflight)
    asked = _Asked(run, plan, config, events, _first_batch_cell(plan, config, events), planned)
    kept = _verdicts(plan, config)
    reasons: list[tuple[str, str, list[Path]]] = []
    for one in kept:
        wrong = _why_not(asked, one)
        if wrong is None:
            return claim(name, True, expected="", found=_cited(one), evidence=[one.path, one.cell.result])
        reasons.append((*wrong, [one.path, one.cell.result]))
    if not ended and asked.first is None and not any(one.own for one in kept):
        return None
    if reasons:
        expected, found, evidence = reasons[0]
        return claim(name, False, expected=expected, found=found, evidence=evidence)
    found = "no smoke: preflight disabled by the plan" if plan.settings.preflight == "disabled" else "no verdict"
    top = Path(plan.paths.results_root) / model_leaf(plan.model) / plan.thinking / config.name
    return claim(name, False, expected="a passed verdict in the tree", found=found, evidence=[run.plan, top])


def _cited(one: _Kept) -> str:
    assert one.verdict is not None, "only a verdict that stands is cited"
    held = sum(assertion.passed is True for assertion in one.verdict.assertions)
    whose = "judged by this run" if one.own else f"of run {one.verdict.run_id}, {sha256_file(one.path)}"
    return f"passed verdict, {held} assertions hold again; {whose}"


def _verdicts(plan: Plan, config: ConfigPlan) -> list[_Kept]:
    """The verdicts that could stand for a config: those of its planned smoke cell, else of earlier runs anywhere below
    the config. Own and passed ones come first, unreadable ones before foreign ones: they are what is complained of."""
    root = Path(plan.paths.results_root)
    planned = [entry.cell for entry in plan.preflight if entry.cell.config == config.name]
    own = [cell_dir(root, plan.model, plan.thinking, cell) for cell in planned]
    top = root / model_leaf(plan.model) / plan.thinking / config.name
    others = [] if own else [CellDir(path) for path in sorted(top.glob("*/rep*"))]
    found = [kept for cell in (own or others) for kept in _of_cell(plan, cell)]
    return sorted(found, key=lambda kept: (kept.verdict is not None and not kept.own, not _says_passed(kept)))


def _says_passed(one: _Kept) -> bool:
    return one.verdict is not None and one.verdict.passed


def _of_cell(plan: Plan, cell: CellDir) -> Iterator[_Kept]:
    for path in [cell.verdict, *sorted(cell.root.glob("smoke-verdict.*.json"))]:
        try:
            verdict = read_json(path, Verdict)
            yield _Kept(path, cell, verdict, verdict.run_id == plan.run_id)
        except FileNotFoundError:
            continue
        except FileDamaged as damaged:
            yield _Kept(path, cell, None, False, damaged.found)


def _why_not(asked: _Asked, one: _Kept) -> tuple[str, str] | None:
    """Why a verdict does not stand for the config, as (expected, found); None when it does."""
    verdict, plan, config = one.verdict, asked.plan, asked.config
    if verdict is None:
        return "a verdict", one.problem
    wanted = {
        "passed": True,
        "config": config.name,
        "config_fingerprint": config.fingerprint,
        "subject_bundle": plan.subject.bundle,
        "model": plan.model,
        "thinking": str(plan.thinking),
        "contract_sha256": config.contract_sha256,
        "result_sha256": sha256_file(one.cell.result) if one.cell.result.is_file() else None,
    }
    if asked.planned:
        wanted["run_id"] = plan.run_id
    for field, value in wanted.items():
        if getattr(verdict, field) != value:
            return f"{field} {value}", f"{field} {getattr(verdict, field)}"
    return _not_the_told(asked, one) or _not_then(asked, verdict) or _not_again(asked, one, verdict)


def _not_the_told(asked: _Asked, one: _Kept) -> tuple[str, str] | None:
    """The file is not the one whose hash this run's own event told."""
    told = [
        event.fields.get("verdict_sha256")
        for event in asked.events
        if event.event is Kind.SMOKE_PASSED and event.fields.get("verdict_path") == str(one.path)
    ]
    if not one.own or not told or told[-1] is None or told[-1] == sha256_file(one.path):
        return None
    return f"verdict {told[-1]} as smoke_passed tells", sha256_file(one.path)


def _not_then(asked: _Asked, verdict: Verdict) -> tuple[str, str] | None:
    """Judged before the first batch cell and, by this run, while its events say that the cell was judged."""
    told = f"judged at {verdict.judged_at}"
    if asked.first is not None and verdict.judged_at > asked.first.ts:
        return f"judged before the first batch cell at {asked.first.ts}", told
    if asked.planned and not any(a <= verdict.judged_at <= b for a, b in _judgings(asked.events, verdict.cell)):
        return "judged between preflight_started and smoke_passed of its cell in events.ndjson", told
    return None


def _judgings(events: Sequence[Event], cell: str) -> Iterator[tuple[str, str]]:
    began = ""
    for event in events:
        if event.fields.get("cell") != cell:
            continue
        if event.event is Kind.PREFLIGHT_STARTED:
            began = began or event.ts  # a kill between verdict and event: the next start judges again
        elif event.event is Kind.SMOKE_FAILED:
            began = ""
        elif event.event is Kind.SMOKE_PASSED and began:
            yield began, event.ts
            began = ""


def _not_again(asked: _Asked, one: _Kept, verdict: Verdict) -> tuple[str, str] | None:
    """The assertions must hold again. A verdict of this run is compared to the last byte; the wording of an earlier
    run's may be another version's."""
    config = asked.config
    try:
        contract = _contract(asked.run, config)
    except (InputWrong, OSError) as error:
        return "a readable contract", bounded(error)
    calls, now = bool(config.roles), verdict.judged_at
    again = assess(one.cell, plan=asked.plan, config=config, contract=contract, calls_models=calls, now=now)
    broken = next((a for a in again.assertions if a.passed is False), None)
    if broken is not None:
        return f"{broken.kind} {broken.target}: {broken.expected}", broken.found
    if [(a.kind, a.target, a.passed) for a in verdict.assertions] != [
        (a.kind, a.target, a.passed) for a in again.assertions
    ]:
        return f"the {len(again.assertions)} assertions of the contract", "other assertions in the verdict"
    if asked.planned and one.path.read_bytes() != to_json(again):
        return "the verdict that the evidence gives", _first_difference(verdict, again)
    return None


def _first_difference(verdict: Verdict, again: Verdict) -> str:
    said, now = flatten(verdict), flatten(again)
    field = next((name for name in sorted(said.keys() | now.keys()) if said.get(name) != now.get(name)), None)
    return "other bytes" if field is None else f"{field} {said.get(field)}, not {now.get(field)}"


def _contract(run: RunDir, config: ConfigPlan) -> Contract | None:
    if config.contract is None:
        return None
    path = run.inputs / config.name / config.contract
    return parse_contract(path.read_bytes(), str(path))


def _first_batch_cell(plan: Plan, config: ConfigPlan, events: Sequence[Event]) -> Event | None:
    """The first start of a cell of this config that is not its smoke cell."""
    smoke = {entry.cell.id for entry in plan.preflight}
    middle = f"/{config.name}/rep"
    for event in events:
        cell = event.fields.get("cell", "")
        if event.event is Kind.CELL_STARTED and middle in cell and cell not in smoke:
            return event
    return None
