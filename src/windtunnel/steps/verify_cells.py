"""Verify, cell by cell: everything a result says is computed again from the files of its attempt.

One pass over the tree, one cell at a time; only sums and faults are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from windtunnel.domain.accounting import thinking_by_role, usage_of
from windtunnel.domain.cell import Cell
from windtunnel.domain.difference import flatten
from windtunnel.domain.digest import sha256_bytes
from windtunnel.domain.grade import Ungraded, grade
from windtunnel.domain.judgement import same_model
from windtunnel.domain.outcome import Status
from windtunnel.domain.patch import count_files
from windtunnel.domain.plan import CellIdentities, CellPlan, ConfigPlan, Plan
from windtunnel.domain.result import Result, TestCounts
from windtunnel.domain.task import Task
from windtunnel.domain.verification import Claim, Tally
from windtunnel.domain.wire import CallRefused, CallStarted, Record
from windtunnel.errors import FileDamaged
from windtunnel.steps.grading import read_verifier_files
from windtunnel.store.files import sha256_file
from windtunnel.store.layout import AttemptDir, CellDir, cell_dir
from windtunnel.store.results import read_result
from windtunnel.store.sealing import check_manifest
from windtunnel.store.wire import read_wire

__all__ = ["CellAudit", "SeenCell", "scan"]


@dataclass(frozen=True)
class SeenCell:
    """A planned cell as it is in the tree. `result` None with a `problem`: the file is there but damaged."""

    planned: CellPlan
    dir: CellDir
    result: Result | None
    result_sha256: str | None
    problem: str = ""

    @property
    def cell(self) -> Cell:
        return self.planned.cell

    @property
    def attempt(self) -> AttemptDir | None:
        return None if self.result is None else self.dir.attempt(self.result.attempt)


def scan(plan: Plan) -> Iterator[SeenCell]:
    """Every planned cell, in the plan's order, read when it is asked for."""
    root = Path(plan.paths.results_root)
    for planned in plan.cells:
        yield _look(planned, cell_dir(root, plan.model, plan.thinking, planned.cell))


def _look(planned: CellPlan, directory: CellDir) -> SeenCell:
    try:
        return SeenCell(planned, directory, read_result(directory.result), sha256_file(directory.result))
    except FileNotFoundError:
        return SeenCell(planned, directory, None, None)
    except (FileDamaged, OSError) as error:
        return SeenCell(planned, directory, None, None, getattr(error, "found", str(error)))


@dataclass
class CellAudit:
    """The per-cell claims of a run. Feed it every cell once, then take the claims."""

    plan: Plan
    configs: dict[str, ConfigPlan] = field(init=False)
    tasks: dict[str, Task] = field(init=False)
    identities: CellIdentities = field(init=False)
    tallies: dict[str, Tally] = field(init=False)

    def __post_init__(self) -> None:
        self.configs = {config.name: config for config in self.plan.configs}
        self.tasks = {task.id: task for task in self.plan.tasks}
        self.identities = CellIdentities(self.plan)
        self.tallies = {name: Tally(name, unit) for name, unit in _CLAIMS}

    def claims(self) -> list[Claim]:
        return [claim for tally in self.tallies.values() for claim in tally.claims()]

    def add(self, seen: SeenCell) -> None:
        """Check one cell. What is not there yet is counted elsewhere."""
        if seen.problem:
            self._fault(_READABLE, seen, "a result.json of ours", seen.problem, seen.dir.result)
            return
        if seen.result is None or seen.attempt is None:
            return
        self.tallies[_READABLE].held(seen.dir.result)
        self._identity(seen, seen.result)
        self._manifest(seen, seen.attempt, seen.result)
        if seen.planned.state == "reuse":
            self._expect(_REUSED, seen, seen.planned.result_sha256, seen.result_sha256, seen.dir.result)
        if seen.result.outcome.status is Status.VALID:
            self._reward(seen, seen.attempt, seen.result)
            self._patch(seen, seen.attempt, seen.result)
            self._wire(seen, seen.attempt, seen.result)

    def _fault(self, claim: str, seen: SeenCell, expected: object, found: object, *evidence: Path) -> None:
        self.tallies[claim].fault(seen.cell.id, expected=str(expected), found=str(found), evidence=evidence)

    def _expect(self, claim: str, seen: SeenCell, expected: object, found: object, *evidence: Path) -> None:
        if expected == found:
            self.tallies[claim].held(evidence[0])
        else:
            self._fault(claim, seen, *_differing(expected, found), *evidence)

    def _identity(self, seen: SeenCell, result: Result) -> None:
        config, task = self.configs[seen.cell.config], self.tasks[seen.cell.task]
        ours = result.run_id == self.plan.run_id
        wanted = {
            "task": seen.cell.task,
            "config": seen.cell.config,
            "rep": seen.cell.rep,
            "model": self.plan.model,
            "thinking": str(self.plan.thinking),
            "subject": (self.plan.subject.name, self.plan.subject.version, self.plan.subject.bundle),
            "cellIdentity": self.identities.of(config, task),
            "plan's cell identity": seen.planned.identity,
            "taskRevision": task.task_revision,
            "verifierRevision": task.verifier_revision,
            "config_fingerprint": config.fingerprint,
            "planIdentity": self.plan.planIdentity if ours else result.identities.planIdentity,
        }
        found = _identity_of(result)
        self._expect(_IDENTITY, seen, wanted, found, seen.dir.result)

    def _manifest(self, seen: SeenCell, attempt: AttemptDir, result: Result) -> None:
        problems = check_manifest(attempt, seen.dir)
        target = seen.dir.current.readlink().as_posix() if seen.dir.current.is_symlink() else "no link"
        if target != f"attempts/{result.attempt}":
            problems = [*problems, f"current is {target}, the result is of attempts/{result.attempt}"]
        for problem in problems:
            culprit = _culprit(problem, seen, attempt)
            self._fault(_MANIFEST, seen, "every file as it was sealed", problem, culprit, attempt.manifest)
        if not problems:
            self.tallies[_MANIFEST].held(attempt.manifest)

    def _reward(self, seen: SeenCell, attempt: AttemptDir, result: Result) -> None:
        files = read_verifier_files(attempt)
        source = attempt.verifier / next(iter(files), "reward.json")
        again = grade(files, reward_range=self.tasks[seen.cell.task].reward_range)
        if isinstance(again, Ungraded):
            self._fault(_REWARD, seen, f"reward {result.reward_partial}", f"{again.reason}: {again.detail}", source)
            return
        said = _grade(result.reward_binary, result.reward_partial, result.reward_detail, result.tests)
        found = _grade(again.reward_binary, again.reward_partial, again.detail, again.tests)
        self._expect(_REWARD, seen, said, found, source)

    def _patch(self, seen: SeenCell, attempt: AttemptDir, result: Result) -> None:
        if result.patch is None:
            self._expect(_PATCH, seen, False, attempt.patch.is_file(), seen.dir.result, attempt.patch)
            return
        if not attempt.patch.is_file():
            self._fault(_PATCH, seen, result.patch.sha256, "there is no such file", attempt.patch)
            return
        data = attempt.patch.read_bytes()
        found = {"sha256": sha256_bytes(data), "bytes": len(data), "files": count_files(data)}
        self._expect(_PATCH, seen, {name: getattr(result.patch, name) for name in found}, found, attempt.patch)

    def _wire(self, seen: SeenCell, attempt: AttemptDir, result: Result) -> None:
        config = self.configs[seen.cell.config]
        try:
            records = read_wire(attempt.wire)
        except FileDamaged as damaged:
            self._fault(_USAGE, seen, "wire records", damaged.found, attempt.wire)
            return
        evidence = attempt.wire if attempt.wire.exists() else seen.dir.result
        self._expect(_USAGE, seen, result.usage, usage_of(records), evidence)
        strangers = _strangers(config, records)
        self._expect(_ROLES, seen, "only roles of the plan", strangers or "only roles of the plan", evidence)
        again = thinking_by_role(config.roles, records)
        self._expect(_THINKING, seen, result.thinking_by_role, again, evidence)


_READABLE = "result.json is readable"
_IDENTITY = "identity equals the plan's"
_MANIFEST = "manifest.sha256 holds and covers result.json"
_REWARD = "reward recomputed from the verifier's own files"
_PATCH = "patch has the hash of the result"
_USAGE = "usage equals the wire records"
_ROLES = "roles on the wire are within the plan's table"
_THINKING = "thinking verdicts recomputed from the wire"
_REUSED = "reused result is the one that was planned"
_CLAIMS = (
    (_READABLE, "cells"),
    (_IDENTITY, "cells"),
    (_MANIFEST, "cells"),
    (_REUSED, "reused cells"),
    (_REWARD, "valid cells"),
    (_PATCH, "valid cells"),
    (_USAGE, "valid cells"),
    (_ROLES, "valid cells"),
    (_THINKING, "valid cells"),
)


def _identity_of(result: Result) -> dict[str, object]:
    ids = result.identities
    return {
        "task": result.task,
        "config": result.config,
        "rep": result.rep,
        "model": result.model,
        "thinking": result.thinking,
        "subject": (result.subject.name, result.subject.version, result.subject.bundle),
        "cellIdentity": ids.cellIdentity,
        "plan's cell identity": ids.cellIdentity,
        "taskRevision": ids.taskRevision,
        "verifierRevision": ids.verifierRevision,
        "config_fingerprint": ids.config_fingerprint,
        "planIdentity": ids.planIdentity,
    }


def _culprit(problem: str, seen: SeenCell, attempt: AttemptDir) -> Path:
    """The file that a problem of the manifest starts with; its name is followed by a colon."""
    name = problem.rsplit(": changed: sealed ", 1)[0].removesuffix(": missing").rsplit(": added after ", 1)[0]
    if name == seen.dir.result.name or name.startswith("result.json: "):
        return seen.dir.result
    path = attempt.root / name
    return path if path.parent.is_dir() else attempt.manifest


def _grade(binary: int | None, partial: float | None, detail: object, tests: TestCounts | None) -> dict[str, object]:
    return {"reward_binary": binary, "reward_partial": partial, "reward_detail": detail, "tests": tests}


def _differing(expected: object, found: object) -> tuple[str, str]:
    """Both values as text; of structured ones only the fields that differ."""
    wanted, got = flatten(expected), flatten(found)
    names = [name for name in sorted(wanted.keys() | got.keys()) if wanted.get(name) != got.get(name)]
    if not names or names == [""]:
        return str(expected), str(found)
    return (
        ", ".join(f"{name} {wanted.get(name, 'unknown')}" for name in names),
        ", ".join(f"{name} {got.get(name, 'unknown')}" for name in names),
    )


def _strangers(config: ConfigPlan, records: tuple[Record, ...]) -> str:
    """Calls that no role of the config allows, in words; empty when there are none."""
    roles = {(role.route, role.name): role.model for role in config.roles}
    found = []
    for record in records:
        if isinstance(record, CallStarted):
            key = (record.route, record.role)
            if key not in roles:
                found.append(f"undeclared {record.route}/{record.role}")
            elif not same_model(roles[key], record.model_asked):
                found.append(f"{record.role} asked for {record.model_asked}, planned {roles[key]}")
        elif isinstance(record, CallRefused) and record.reason == "undeclared_role":
            found.append(f"refused {record.route}/{record.role}")
    return "; ".join(dict.fromkeys(found))
