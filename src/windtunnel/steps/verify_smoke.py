"""Verify the smoke gate: every config has a verdict of its own, it still holds, and it was there first.

A verdict file says `passed`; that is a claim. What counts is that the same assertions hold again on the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from windtunnel.domain.cell import model_leaf
from windtunnel.domain.contract import Contract, Verdict, bounded, parse_contract
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
    """A verdict in the tree. `own` true: judged by this run."""

    path: Path
    cell: CellDir
    verdict: Verdict
    own: bool


def smoke_claims(run: RunDir, plan: Plan, events: Sequence[Event], *, ended: bool) -> list[Claim]:
    """One line per config that the plan executes. On a run that goes on, a config whose smoke is not judged yet and
    none of whose batch cells started is left out."""
    executed = [config for config in plan.configs if config.executed]
    found = (_of_config(run, plan, config, events, ended=ended) for config in executed)
    return [line for line in found if line is not None]


def _of_config(run: RunDir, plan: Plan, config: ConfigPlan, events: Sequence[Event], *, ended: bool) -> Claim | None:
    name = f"smoke of config {config.name}"
    kept = list(_verdicts(plan, config))
    first = _first_batch_cell(plan, config, events)
    reasons: list[tuple[str, str, list[Path]]] = []
    for one in kept:
        wrong = _why_not(run, plan, config, one, first)
        if wrong is None:
            return claim(name, True, expected="", found=_cited(one), evidence=[one.path, one.cell.result])
        reasons.append((*wrong, [one.path, one.cell.result]))
    if not ended and first is None and not any(one.own for one in kept):
        return None
    if reasons:
        expected, found, evidence = reasons[0]
        return claim(name, False, expected=expected, found=found, evidence=evidence)
    found = "no smoke: preflight disabled by the plan" if plan.settings.preflight == "disabled" else "no verdict"
    top = Path(plan.paths.results_root) / model_leaf(plan.model) / plan.thinking / config.name
    return claim(name, False, expected="a passed verdict in the tree", found=found, evidence=[run.plan, top])


def _cited(one: _Kept) -> str:
    held = sum(assertion.passed is True for assertion in one.verdict.assertions)
    whose = "judged by this run" if one.own else f"of run {one.verdict.run_id}, {sha256_file(one.path)}"
    return f"passed verdict, {held} assertions hold again; {whose}"


def _verdicts(plan: Plan, config: ConfigPlan) -> Iterator[_Kept]:
    """The verdicts that could stand for a config: of its planned smoke cell first, newest last kept first; then those
    of earlier runs anywhere below the config."""
    root = Path(plan.paths.results_root)
    planned = [entry.cell for entry in plan.preflight if entry.cell.config == config.name]
    own = [cell_dir(root, plan.model, plan.thinking, cell) for cell in planned]
    top = root / model_leaf(plan.model) / plan.thinking / config.name
    others = [] if own else [CellDir(path) for path in sorted(top.glob("*/rep*"))]
    found = [kept for cell in (own or others) for kept in _of_cell(plan, cell)]
    return iter(sorted(found, key=lambda kept: (not kept.own, not kept.verdict.passed)))


def _of_cell(plan: Plan, cell: CellDir) -> Iterator[_Kept]:
    for path in [cell.verdict, *sorted(cell.root.glob("smoke-verdict.*.json"))]:
        with suppress(FileNotFoundError, FileDamaged):
            verdict = read_json(path, Verdict)
            yield _Kept(path, cell, verdict, verdict.run_id == plan.run_id)


def _why_not(run: RunDir, plan: Plan, config: ConfigPlan, one: _Kept, first: Event | None) -> tuple[str, str] | None:
    """Why a verdict does not stand for the config, as (expected, found); None when it does."""
    verdict = one.verdict
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
    for field, value in wanted.items():
        if getattr(verdict, field) != value:
            return f"{field} {value}", f"{field} {getattr(verdict, field)}"
    limit = first.ts if first is not None else None
    if limit is not None and verdict.judged_at > limit:
        return f"judged before the first batch cell at {limit}", f"judged at {verdict.judged_at}"
    return _not_again(run, plan, config, one)


def _not_again(run: RunDir, plan: Plan, config: ConfigPlan, one: _Kept) -> tuple[str, str] | None:
    try:
        contract = _contract(run, config)
    except (InputWrong, OSError) as error:
        return "a readable contract", bounded(error)
    again = assess(
        one.cell,
        plan=plan,
        config=config,
        contract=contract,
        calls_models=bool(config.roles),
        now=one.verdict.judged_at,
    )
    broken = next((a for a in again.assertions if a.passed is False), None)
    if broken is not None:
        return f"{broken.kind} {broken.target}: {broken.expected}", broken.found
    said = {(a.kind, a.target): a.passed for a in one.verdict.assertions}
    if said != {(a.kind, a.target): a.passed for a in again.assertions}:
        return "the assertions of the contract", f"{len(said)} others in the verdict"
    return None


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
