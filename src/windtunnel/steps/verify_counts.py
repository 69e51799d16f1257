"""Verify the counts: plan, events, status.json, tree and index say the same about every cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from windtunnel.domain.cell import model_leaf
from windtunnel.domain.contract import bounded
from windtunnel.domain.digest import sha256_bytes, to_line
from windtunnel.domain.events import Event, Kind
from windtunnel.domain.fold import Fold
from windtunnel.domain.manifest import Manifest
from windtunnel.domain.outcome import Status as Outcome
from windtunnel.domain.plan import Plan
from windtunnel.domain.status import Status
from windtunnel.domain.verification import Claim, Tally, claim
from windtunnel.steps.verify_cells import SeenCell
from windtunnel.store.files import read_lines
from windtunnel.store.index import index_entry
from windtunnel.store.layout import RunDir
from windtunnel.store.runs import RunState

__all__ = ["CountAudit", "status_claims"]

_AT_ITS_SEQ = (
    "run_id",
    "plan_identity",
    "state",
    "stage",
    "reason",
    "started_at",
    "updated_at",
    "resumes",
    "counts",
    "by_reason",
    "recent_finished",
    "usage",
    "cost",
)


def status_claims(state: RunState, manifest: Manifest, *, ended: bool) -> Iterator[Claim]:
    """status.json is the fold of the events that it says it has taken in; of an ended run, of all of them."""
    name, evidence = "status.json is rebuilt from manifest and events", [state.run.status, state.run.events]
    status = state.status_on_disk
    if status is None:
        yield claim(name, False, expected="a status", found="none that can be read", evidence=evidence)
        return
    again = _fold_until(manifest, state.events, status.seq)
    wrong = [field for field in _AT_ITS_SEQ if getattr(status, field) != getattr(again, field)]
    last = state.events[-1].seq if state.events else 0
    behind = (ended and status.seq != last) or status.seq > last
    if behind and not wrong:
        yield claim(name, False, expected=f"seq {last}", found=f"seq {status.seq}", evidence=evidence)
        return
    expected = ", ".join(f"{field} {getattr(again, field)}" for field in wrong)
    found = ", ".join(f"{field} {getattr(status, field)}" for field in wrong) or f"all of it, at seq {status.seq}"
    yield claim(name, not wrong, expected=bounded(expected), found=bounded(found), evidence=evidence)
    yield _equation(status, evidence)


def _fold_until(manifest: Manifest, events: tuple[Event, ...], seq: int) -> Status:
    fold = Fold(manifest)
    for event in events:
        if event.seq > seq:
            break
        fold.apply(event)
    return fold.status()


def _equation(status: Status, evidence: list[Path]) -> Claim:
    c = status.counts
    parts = (c.reused, c.pending, c.running, c.valid, c.invalid, c.missing)
    told = (
        f"{c.planned} = {c.reused} reused + {c.pending} pending + {c.running} running + {c.valid} valid"
        f" + {c.invalid} invalid + {c.missing} missing"
    )
    name = "counts of status.json add up"
    return claim(name, c.planned == sum(parts), expected=f"a sum of {sum(parts)}", found=told, evidence=evidence)


@dataclass
class CountAudit:
    """Tree and index against the events. Feed it every planned cell once, then take the claims."""

    run: RunDir
    plan: Plan
    fold: Fold
    ended: bool
    hashes: dict[str, str | None]
    agree: Tally = field(default_factory=lambda: Tally("tree and events agree", "cells"))
    valid: Tally = field(default_factory=lambda: Tally("every planned cell is valid", "cells"))
    tree: Counter[str] = field(default_factory=Counter)
    index_lines: dict[str, tuple[str, Path]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: RunState, manifest: Manifest, plan: Plan, *, ended: bool) -> CountAudit:
        fold, hashes = Fold(manifest), {}
        for event in state.events:
            fold.apply(event)
            if event.event is Kind.CELL_FINISHED:
                hashes[str(event.fields.get("cell"))] = event.fields.get("result_sha256")
        return cls(state.run, plan, fold, ended, hashes)

    def is_finished(self, cell_id: str) -> bool:
        """Whether the events say that nothing more happens to this cell in this go and that a result is there."""
        return self.fold.cell_state(cell_id) in {"valid", "invalid", "reused"}

    def add(self, seen: SeenCell) -> None:
        """Take in a cell. Of a run that goes on, cells that are at work or not begun are passed over."""
        said = str(self.fold.cell_state(seen.cell.id) or "not in the manifest")
        ours = seen.result is not None and (seen.result.run_id == self.plan.run_id or said == "reused")
        found = str(seen.result.outcome.status) if seen.result is not None and ours else "no result"
        if not self.ended and said in {"running", "pending"}:
            self.tree[said] += 1
            return
        self.tree[found] += 1
        wanted = {"reused": "valid", "pending": "no result", "missing": "no result"}.get(said, said)
        evidence = [seen.dir.result if seen.dir.result.exists() else self.run.events, self.run.events]
        if seen.problem or found != wanted:
            found = f"the tree: {seen.problem or found}"
            self.agree.fault(seen.cell.id, expected=f"the events: {said}", found=found, evidence=evidence)
        elif said in {"valid", "invalid"} and self.hashes.get(seen.cell.id) != seen.result_sha256:
            expected = f"result.json {self.hashes.get(seen.cell.id)}, as in cell_finished"
            self.agree.fault(seen.cell.id, expected=expected, found=str(seen.result_sha256), evidence=evidence)
        else:
            self.agree.held(seen.dir.result if found != "no result" else self.run.events)
        self._outcome(seen, said)
        if self.ended and seen.result is not None and seen.result_sha256 is not None:
            entry = index_entry(self._leaf, seen.dir.result, seen.result_sha256, seen.result)
            self.index_lines[seen.cell.id] = (sha256_bytes(to_line(entry)), seen.dir.result)

    def _outcome(self, seen: SeenCell, said: str) -> None:
        if not self.ended:
            return
        outcome = seen.result.outcome if seen.result is not None else None
        if outcome is not None and outcome.status is Outcome.VALID and said in {"valid", "reused"}:
            self.valid.held(seen.dir.result)
            return
        if outcome is None:
            told = f"{seen.problem or 'no result'}; the events say {said}"
        elif outcome.status is Outcome.VALID:
            told = f"the events say {said}; the result there is of run {seen.result.run_id if seen.result else None}"
        else:
            told = f"{outcome.status}: {outcome.reason} {outcome.detail}"
        evidence = [seen.dir.result if outcome is not None else self.run.events]
        self.valid.fault(seen.cell.id, expected="valid", found=bounded(told), evidence=evidence)

    def claims(self) -> Iterator[Claim]:
        counts = self.fold.counts
        finished = counts.reused + counts.valid
        wanted = {"valid": finished, "invalid": counts.invalid}
        found = {name: self.tree[name] for name in wanted}
        name, evidence = "counts of the tree equal those of the events", [self.run.events, self.run.status]
        told = f"{counts.planned} planned: {counts.reused} reused, {counts.valid} valid, {counts.invalid} invalid"
        held = wanted == found and counts.planned == len(self.plan.cells) == sum(self.tree.values())
        yield claim(name, held, expected=f"{wanted}", found=told if held else f"{found}", evidence=evidence)
        yield from self.agree.claims()
        if self.ended:
            yield self._index()
            yield from self.valid.claims()

    @property
    def _leaf(self) -> Path:
        return Path(self.plan.paths.results_root) / model_leaf(self.plan.model) / self.plan.thinking

    def _index(self) -> Claim:
        """results.jsonl is only an index, so that every planned cell's line must be what its result.json makes now."""
        path, name = self._leaf / "results.jsonl", "index results.jsonl equals the tree"
        if not path.is_file() and not self.index_lines:
            return claim(name, True, expected="", found="no result, so no index", evidence=[self.run.events])
        if not path.is_file():
            return claim(name, False, expected="an index", found="there is none", evidence=[path])
        there = {sha256_bytes(line) for line in read_lines(path)}
        for cell_id, (line, result) in self.index_lines.items():
            if line not in there:
                expected = f"the line that result.json of {cell_id} makes"
                return claim(name, False, expected=expected, found="no such line", evidence=[path, result])
        return claim(name, True, expected="", found=f"{len(self.index_lines)} planned cells", evidence=[path])
