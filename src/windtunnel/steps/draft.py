"""Draft a plan: everything that will run, resolved from flags and files. No model, no container, no network.

tasks -> limits, admission -> configs, roles, credentials -> cells and what is stored -> first cells -> identity
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from windtunnel.domain.cell import folder, model_leaf
from windtunnel.domain.digest import decode, to_json
from windtunnel.domain.plan import (
    ConfigPlan,
    EnvironmentPlan,
    Paths,
    Plan,
    Selection,
    Settings,
    SubjectPlan,
    plan_identity,
)
from windtunnel.domain.role import EXECUTOR, Thinking
from windtunnel.domain.task import Limits, Task
from windtunnel.environments.interface import EnvironmentFacts
from windtunnel.errors import InputWrong, NotBuiltYet
from windtunnel.steps.draft_cells import draft_cells, draft_preflight
from windtunnel.steps.draft_configs import compare_configs, draft_configs
from windtunnel.steps.draft_request import Facts, Request
from windtunnel.steps.draft_resources import admit, check_ceilings, draft_limits, host_reserve_mb
from windtunnel.steps.draft_roles import check_policy
from windtunnel.store.configs import find_config
from windtunnel.store.tasks import other_folders, read_task, select, task_dir
from windtunnel.subjects.interface import Subject

__all__ = ["draft", "resolved_thinking"]

_CAPTURE = re.compile(r"^(first:\d{1,6}|errors|all|none)$")
_PUBLIC_VERIFIER = "the verifier has the public network"  # the task reader's words


@dataclass(frozen=True)
class _Parts:
    """What a plan is put together from, each resolved and checked."""

    thinking: Thinking
    selection: Selection
    tasks: tuple[Task, ...]
    limits: dict[str, Limits]
    reserve_mb: int
    configs: tuple[ConfigPlan, ...]
    warnings: list[str]


def draft(request: Request, *, subject: Subject, environment_facts: EnvironmentFacts | None, facts: Facts) -> Plan:
    """Resolve a request into a plan with its identity. Raises InputWrong or NotBuiltYet, each naming what to change."""
    _check_request(request)
    thinking = resolved_thinking(request, subject)
    warnings = check_policy(request.model, allow_openrouter=request.allow_openrouter) if request.model else []
    selection, tasks = _draft_tasks(request)
    if subject.name == "oracle":
        _refuse_unsolved(request, tasks)
    check_ceilings(request, facts.cpus)
    limits = draft_limits(tasks, request)
    reserve_mb = host_reserve_mb(request, facts.memory_mb)
    admit(tasks, limits, workers=request.workers, reserve_mb=reserve_mb, memory_mb=facts.memory_mb)
    configs, noted = draft_configs(request, subject=subject, thinking=thinking, environ=facts.environ)
    warnings += [*_flag_warnings(request), *_isolation(environment_facts), *_task_warnings(request, tasks), *noted]
    parts = _Parts(thinking, selection, tasks, limits, reserve_mb, configs, warnings)
    return _complete(_without_cells(request, subject, environment_facts, facts, parts))


def resolved_thinking(request: Request, subject: Subject) -> Thinking:
    """The level of the executor: as asked, high by default, off without a model. Raises InputWrong."""
    if request.model is None:
        if subject.calls_models:
            raise InputWrong(f"--model is missing: {subject.name} calls a model. Give provider/model.")
        if request.thinking not in {None, Thinking.OFF}:
            raise InputWrong(f"--thinking {request.thinking} without --model: there is nothing to think. Leave it out.")
        return Thinking.OFF
    return request.thinking or Thinking.HIGH


def _check_request(request: Request) -> None:
    why = folder(request.run_id)
    if why is not None:
        raise InputWrong(f"--run-id {request.run_id!r} cannot be a folder: {why}.")
    if request.model is not None:
        leaf = folder(model_leaf(request.model))
        if leaf is not None:
            raise InputWrong(f"--model {request.model!r}: its last part cannot be a folder: {leaf}.")
    if not _CAPTURE.match(request.capture_bodies):
        raise InputWrong(f"--capture-bodies {request.capture_bodies!r}: expected first:N, errors, all or none.")
    for role in request.allow_unproven_thinking:
        if role != EXECUTOR:
            raise InputWrong(f"--allow-unproven-thinking {role!r}: no such role here; the only one is {EXECUTOR}.")
    policy = request.workspace / "policy.toml"
    if policy.exists():
        raise NotBuiltYet("policy.toml (rules beyond the defaults)", str(policy))


def _draft_tasks(request: Request) -> tuple[Selection, tuple[Task, ...]]:
    root = request.tasks_root
    selection = select(
        root,
        tasks=request.tasks,
        subset=request.subset,
        span=request.span,
        everything=request.all_tasks,
        sample=request.sample,
        seed=request.sample_seed,
    )
    tasks = tuple(read_task(task_dir(root, name)) for name in selection.tasks)
    elsewhere = [task.id for task in tasks if not task.local]
    if request.environment != "docker" and elsewhere:
        raise InputWrong(
            f"environment {request.environment} runs only tasks with [metadata.windtunnel] local = true; "
            f"{len(elsewhere)} of {len(tasks)} have it not: {_some(elsewhere)}. Use --environment docker."
        )
    return selection, tasks


def _refuse_unsolved(request: Request, tasks: Sequence[Task]) -> None:
    missing = [t.id for t in tasks if not (task_dir(request.tasks_root, t.id) / "solution/solve.sh").is_file()]
    if missing:
        raise InputWrong(
            f"subject oracle runs only tasks with solution/solve.sh; {len(missing)} of {len(tasks)} have it not: "
            f"{_some(missing)}. Choose other tasks, or another --subject."
        )


def _without_cells(
    request: Request, subject: Subject, environment_facts: EnvironmentFacts | None, facts: Facts, parts: _Parts
) -> Plan:
    baseline = find_config(request.baseline or request.configs[0], request.config_root).name
    differences, undeclared = compare_configs(parts.configs, baseline)
    return Plan(
        run_id=request.run_id,
        created_at=facts.now,
        command=request.command,
        versions=dict(facts.versions),
        host={"memory_mb": facts.memory_mb, "cpus": facts.cpus},
        environment=_environment(environment_facts),
        subject=SubjectPlan(name=subject.name, version=subject.version, platform=facts.platform, bundle=facts.bundle),
        model=request.model,
        thinking=parts.thinking,
        settings=_settings(request, parts.reserve_mb),
        selection=parts.selection,
        baseline=baseline,
        configs=parts.configs,
        tasks=parts.tasks,
        limits=parts.limits,
        differences=differences,
        cells=(),
        paths=_paths(request),
        warnings=(*parts.warnings, *undeclared),
    )


def _complete(plan: Plan) -> Plan:
    """Add cells, first cells, identity and the command that runs it.

    The round trip through JSON makes every value what a reader of the file will see (2 becomes 2.0 where a number
    may have decimals), so that the identity recomputed from the file is this one.
    """
    plan = decode(to_json(plan), Plan)
    plan = msgspec.structs.replace(plan, cells=draft_cells(plan))
    plan = msgspec.structs.replace(plan, preflight=draft_preflight(plan))
    identity = plan_identity(plan)
    run_command = ("windtunnel", "run", _short(plan.paths.plan_file, plan.paths.workspace), "--confirm", identity)
    return msgspec.structs.replace(plan, planIdentity=identity, run_command=run_command)


def _short(path: str, workspace: str) -> str:
    """The path as it is typed from the workspace."""
    full = Path(path)
    return str(full.relative_to(workspace)) if full.is_relative_to(workspace) else path


def _settings(request: Request, reserve_mb: int) -> Settings:
    return Settings(
        environment=request.environment,
        memory_mb=request.memory_mb,
        cpus=request.cpus,
        pids=request.pids,
        agent_timeout_s=request.agent_timeout_s,
        verifier_network=request.verifier_network,
        reps=request.reps,
        workers=request.workers,
        order=request.order,
        order_seed=request.order_seed,
        preflight=request.preflight,
        existing=request.existing,
        cell_retries=request.cell_retries,
        host_reserve_mb=reserve_mb,
        capture_bodies=request.capture_bodies,
        allow_openrouter=request.allow_openrouter,
        allow_unproven_thinking=tuple(sorted(set(request.allow_unproven_thinking))),
        progress_interval_s=request.progress_interval_s,
    )


def _paths(request: Request) -> Paths:
    return Paths(
        workspace=str(request.workspace),
        results_root=str(request.results_root),
        state_root=str(request.state_root),
        tasks_root=str(request.tasks_root),
        config_root=str(request.config_root),
        run_dir=str(request.state_root / request.run_id),
        plan_file=str(request.plan_file),
        receipt_file=str(request.receipt_file),
    )


def _environment(found: EnvironmentFacts | None) -> EnvironmentPlan:
    if found is None:
        return EnvironmentPlan()
    return EnvironmentPlan(
        version=found.version, isolation=found.isolation, memory_enforced_by=found.memory_enforced_by
    )


def _flag_warnings(request: Request) -> list[str]:
    warnings = []
    if request.preflight == "disabled":
        warnings.append(
            "--preflight disabled: verify will not PASS, and no config's first cell is checked before the whole batch "
            "is spent"
        )
    if request.allow_openrouter:
        through = (request.model or "").startswith("openrouter/")
        used = f"{request.model} goes through it" if through else "no model of this plan goes through it"
        warnings.append(f"--allow-openrouter: consent to OpenRouter, which chooses who serves a model; {used}")
    warnings += [
        f"--allow-unproven-thinking {role}: its level may be unknown" for role in request.allow_unproven_thinking
    ]
    return warnings


def _isolation(found: EnvironmentFacts | None) -> list[str]:
    if found is None or found.name == "docker":
        return []
    warnings = [f"environment {found.name}: {found.isolation}"]
    if found.memory_enforced_by == "nothing":
        warnings.append(f"environment {found.name}: memory limits are enforced by nothing")
    return warnings


def _task_warnings(request: Request, tasks: Sequence[Task]) -> list[str]:
    told: dict[str, list[str]] = {}
    for task in tasks:
        for text in task.warnings:
            told.setdefault(text, []).append(task.id)
        if task.agent_timeout_s is None and request.agent_timeout_s is None:
            told.setdefault("no agent time-out, neither here nor by --agent-timeout", []).append(task.id)
    if request.verifier_network == "none":
        told.pop(_PUBLIC_VERIFIER, None)
    warnings = [f"{len(ids)} of {len(tasks)} tasks: {text} ({_some(ids)})" for text, ids in told.items()]
    others = other_folders(request.tasks_root)
    if others:
        warnings.append(f"tasks root: {len(others)} folders without task.toml, not tasks: {_some(others)}")
    return warnings


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
