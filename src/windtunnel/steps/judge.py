"""Judge a smoke cell on what it left on disk: the generic checks, then the config's contract. Makes no model call."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path

from windtunnel.domain.contract import Contract, Verdict
from windtunnel.domain.contract_checks import check_contract
from windtunnel.domain.digest import to_json
from windtunnel.domain.plan import ConfigPlan, Plan
from windtunnel.domain.result import Result
from windtunnel.domain.smoke_checks import SmokeFacts, generic_checks
from windtunnel.errors import FileDamaged
from windtunnel.host.clock import utc_now
from windtunnel.store.evidence import StoredEvidence, find_files
from windtunnel.store.files import read_json, sha256_file, write_atomic
from windtunnel.store.layout import CellDir
from windtunnel.store.results import read_result
from windtunnel.store.wire import read_wire

__all__ = ["assess", "judge"]


def judge(
    cell_dir: CellDir,
    *,
    plan: Plan,
    config: ConfigPlan,
    contract: Contract | None,
    calls_models: bool,
    now: str | None = None,
) -> Verdict:
    """Assess a cell and keep the verdict as `smoke-verdict.json`; a former one is kept as `smoke-verdict.<n>.json`.

    The same finding by the same run is not written twice, so that a resume leaves the verdict that let the batch
    start where and as old as it is. `now`: UTC text, for tests."""
    verdict = assess(
        cell_dir, plan=plan, config=config, contract=contract, calls_models=calls_models, now=now or utc_now()
    )
    former = _former(cell_dir.verdict)
    if former is not None and _same_finding(former, verdict):
        return former
    cell_dir.root.mkdir(parents=True, exist_ok=True)
    _set_aside(cell_dir.verdict)
    write_atomic(cell_dir.verdict, to_json(verdict))
    return verdict


def assess(
    cell_dir: CellDir, *, plan: Plan, config: ConfigPlan, contract: Contract | None, calls_models: bool, now: str
) -> Verdict:
    """The verdict on a cell's stored evidence; writes nothing. The cell's name comes from its place in the tree."""
    evidence = StoredEvidence(cell_dir, _extensions(config))
    facts = _facts(cell_dir, evidence, plan, config, calls_models)
    assertions = generic_checks(facts) + (check_contract(contract, evidence) if contract is not None else ())
    rep, task = cell_dir.root.name, cell_dir.root.parent.name
    return Verdict(
        config=config.name,
        cell=f"{task}/{config.name}/{rep}",
        run_id=plan.run_id,
        config_fingerprint=config.fingerprint,
        subject_bundle=plan.subject.bundle,
        model=plan.model,
        thinking=plan.thinking,
        contract_sha256=config.contract_sha256 if contract is not None else "none",
        result_sha256=_hash(cell_dir.result),
        assertions=assertions,
        passed=all(assertion.passed is not False for assertion in assertions),
        judged_at=now,
    )


def _extensions(config: ConfigPlan) -> tuple[str, ...]:
    paths = (file.path for file in config.files)
    return tuple(path.removeprefix("extensions/") for path in paths if path.startswith("extensions/"))


def _facts(
    cell_dir: CellDir, evidence: StoredEvidence, plan: Plan, config: ConfigPlan, calls_models: bool
) -> SmokeFacts:
    result, problem = _result(cell_dir)
    attempt = cell_dir.attempt(result.attempt) if result is not None else evidence.attempt()
    if attempt is None:
        return SmokeFacts(result=result, problem=problem, roles=config.roles, calls_models=calls_models)
    wire_problem = ""
    try:
        records = read_wire(attempt.wire)
    except FileDamaged as error:
        records, wire_problem = (), error.found
    sessions = [name for name in find_files(attempt.root, ["session/**"]) if (attempt.root / name).stat().st_size]
    return SmokeFacts(
        result=result,
        problem=problem,
        records=records,
        wire_problem=wire_problem,
        sessions=tuple(sessions),
        attempt=f"attempts/{attempt.root.name}",
        roles=config.roles,
        allow_unproven=plan.settings.allow_unproven_thinking,
        calls_models=calls_models,
    )


def _result(cell_dir: CellDir) -> tuple[Result | None, str]:
    try:
        return read_result(cell_dir.result), ""
    except FileNotFoundError:
        return None, "there is no result.json"
    except FileDamaged as error:
        return None, error.found


def _hash(path: Path) -> str | None:
    with suppress(OSError):
        return sha256_file(path)
    return None


def _former(path: Path) -> Verdict | None:
    with suppress(FileNotFoundError, FileDamaged):
        return read_json(path, Verdict)
    return None


def _same_finding(a: Verdict, b: Verdict) -> bool:
    fields = (name for name in Verdict.__struct_fields__ if name != "judged_at")
    return all(getattr(a, name) == getattr(b, name) for name in fields)


def _set_aside(path: Path) -> None:
    """Nothing is overwritten: a former verdict gets the first free number."""
    if not path.exists():
        return
    kept = next(free for n in count(1) if not (free := path.with_name(f"{path.stem}.{n}{path.suffix}")).exists())
    path.rename(kept)
