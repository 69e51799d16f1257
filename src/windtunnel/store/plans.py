"""The shelf of plans: `plans/<run-id>.json` and its receipt `plans/<run-id>.txt`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.domain.digest import decode, to_json
from windtunnel.domain.plan import Plan
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.store.files import write_atomic

__all__ = ["read_plan", "write_plan"]

_SCHEMA_VERSION = 1


def read_plan(path: Path) -> Plan:
    """Read a plan file. Raises InputWrong when it is missing or unreadable, FileDamaged when it is not a plan.

    Whether the identity written in it is still true is `require_confirmation`'s question, not this one's.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise InputWrong(f"{path}: no such plan file. Make one with: windtunnel plan ... --run-id NAME") from error
    except OSError as error:
        raise InputWrong(f"{path}: the plan file cannot be read: {error.strerror}. Mend its permissions.") from error
    try:
        plan = decode(data, Plan)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        _refuse_other_schema(path, _schema_version(data))
        raise FileDamaged(path, f"not a plan: {error}", "Plan again") from error
    _refuse_other_schema(path, plan.schemaVersion)
    return plan


def _schema_version(data: bytes) -> int:
    """The schema a file names, whatever else is in it; this program's own when it names none."""
    try:
        named = decode(data, dict[str, Any]).get("schemaVersion")
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return _SCHEMA_VERSION
    return named if isinstance(named, int) and not isinstance(named, bool) else _SCHEMA_VERSION


def _refuse_other_schema(path: Path, version: int) -> None:
    if version != _SCHEMA_VERSION:
        newer = " (made by a newer windtunnel)" if version > _SCHEMA_VERSION else ""
        raise FileDamaged(path, f"plan schema {version}{newer}, this program reads {_SCHEMA_VERSION}", "Plan again")


def write_plan(plan: Plan, receipt_text: str) -> None:
    """Write plan and receipt, each as a whole. Raises InputWrong when a plan of another identity is there."""
    plan_file, receipt_file = Path(plan.paths.plan_file), Path(plan.paths.receipt_file)
    _refuse_other(plan_file, plan)
    beside = receipt_file == plan_file.with_suffix(receipt_file.suffix)
    with _naming("receipt", receipt_file, "--plan-out" if beside else "--receipt-out"):
        receipt_file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(receipt_file, receipt_text.encode("utf-8"))
    with _naming("plan", plan_file, "--plan-out"):
        plan_file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(plan_file, to_json(plan))


@contextmanager
def _naming(what: str, path: Path, flag: str) -> Iterator[None]:
    """A file system's refusal becomes one line that names the file and the flag that chose its place."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise InputWrong(f"{where}: the {what} cannot be written: {error.strerror}. Choose another {flag}.") from error


def _refuse_other(path: Path, plan: Plan) -> None:
    """A plan file is overwritten only by the same plan; anything else there is kept."""
    if not path.exists() and not path.is_symlink():
        return
    try:
        there = read_plan(path).planIdentity
    except InputWrong as error:
        raise InputWrong(f"{path} is there and is not a plan of this program. Choose another --run-id.") from error
    if there != plan.planIdentity:
        raise InputWrong(
            f"{path} holds another plan ({there}), this one is {plan.planIdentity}. Choose another --run-id, "
            "or move that file away."
        )
