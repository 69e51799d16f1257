"""What the results tree already holds for a planned cell, read fast and judged by identity."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from windtunnel.domain.cell import Cell
from windtunnel.domain.difference import changed_files, identity_differences, told
from windtunnel.domain.digest import sha256_bytes
from windtunnel.domain.plan import ConfigPlan, Plan, cell_document, cell_identity
from windtunnel.domain.result import Result
from windtunnel.domain.task import Task
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.store.files import read_json
from windtunnel.store.layout import RunDir

__all__ = ["Differing", "Stored", "differing", "look"]

_FAST = msgspec.json.Decoder(Result)
_SCHEMA_VERSION = 1
_FILES, _VERIFIER = "config files", "verifier"
_UNKNOWN = (
    "stored under another --agent-timeout, --memory-mb, --cpus, --pids, --verifier-network, --environment, --leaf, "
    "route, bound or image (which one is not known: the plan of that run is gone)"
)


@dataclass(frozen=True)
class Stored:
    """A result.json: parsed, or `result` None when it is unreadable."""

    result: Result | None
    sha256: str


@dataclass(frozen=True)
class Differing:
    """Lines for a person, each naming a flag or a file. `verifier_alone`: nothing but the verifier changed."""

    lines: tuple[str, ...]
    verifier_alone: bool = False


def look(path: Path) -> Stored | None:
    """Read a result.json; None when there is none. Raises InputWrong when the file system does not let us."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputWrong(
            f"{path}: cannot be read: {error.strerror}. Mend it, or use another --results-root."
        ) from error
    return Stored(_parse(data, path), sha256_bytes(data))


def _parse(data: bytes, path: Path) -> Result | None:
    try:
        result: Result = _FAST.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # The slow reader takes what agents print (lone surrogates) and decides.
        try:
            result = read_json(path, Result)
        except (FileDamaged, OSError):
            return None
    return result if result.schemaVersion == _SCHEMA_VERSION else None


def differing(plan: Plan, config: ConfigPlan, task: Task, cell: Cell, result: Result) -> Differing:
    """In what a stored result is of another identity.

    The result itself names the revisions, model and subject; the plan of the run that made it, when it is still
    there, names everything else.
    """
    lines = _from_result(plan, config, task, cell, result)
    only_verifier = list(lines) == [_VERIFIER]
    if only_verifier and _is_verifier_alone(plan, config, task, result):
        return Differing(tuple(lines.values()), verifier_alone=True)
    more = _from_old_plan(plan, config, task, result)
    if any(key.startswith("file ") for key in more):
        lines.pop(_FILES, None)
    for key, line in more.items():
        lines.setdefault(key, line)
    if not lines or (only_verifier and not more):
        lines[_UNKNOWN] = _UNKNOWN
    return Differing(tuple(lines.values()))


def _from_result(plan: Plan, config: ConfigPlan, task: Task, cell: Cell, result: Result) -> dict[str, str]:
    then, now = result.subject, plan.subject
    values = {
        "task": (result.task, cell.task),
        "config": (result.config, cell.config),
        "rep": (result.rep, cell.rep),
        "--model": (result.model, plan.model),
        "--thinking": (result.thinking, str(plan.thinking)),
        "--subject": (f"{then.name}@{then.version}", f"{now.name}@{now.version}"),
        "the subject's bundle": (then.bundle, now.bundle),
    }
    hashes = {
        _FILES: (result.identities.config_fingerprint, config.fingerprint, f"the files of config {config.name}"),
        "task files": (result.identities.taskRevision, task.task_revision, "instruction.md, environment/ or task.toml"),
        _VERIFIER: (result.identities.verifierRevision, task.verifier_revision, "tests/ or [verifier] in task.toml"),
    }
    lines = {label: told(label, *pair) for label, pair in values.items() if pair[0] != pair[1]}
    for key, (stored, planned, files) in hashes.items():
        if stored != planned:
            where = "" if key == _FILES else f" of task {task.id}"
            lines[key] = told(files + where, stored, planned)
    return lines


def _is_verifier_alone(plan: Plan, config: ConfigPlan, task: Task, result: Result) -> bool:
    """Whether the plan would have had the stored identity with the stored verifier revision."""
    then = msgspec.structs.replace(task, verifier_revision=result.identities.verifierRevision)
    return cell_identity(plan, config, then) == result.identities.cellIdentity


def _from_old_plan(plan: Plan, config: ConfigPlan, task: Task, result: Result) -> dict[str, str]:
    try:
        old = read_json(RunDir(Path(plan.paths.state_root) / result.run_id).plan, Plan)
        then_config = next(c for c in old.configs if c.name == config.name)
        then_task = next(t for t in old.tasks if t.id == task.id)
        if cell_identity(old, then_config, then_task) != result.identities.cellIdentity:
            return {}  # another plan of that name: its values are not the result's
    except (FileDamaged, OSError, StopIteration, KeyError):
        return {}
    files = {f"file {path}": f"file {path} of config {config.name}" for path in changed_files(then_config, config)}
    stored = cell_document(old, then_config, then_task)
    return files | identity_differences(stored, cell_document(plan, config, task))
