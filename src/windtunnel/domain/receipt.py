"""The receipt: a plan for human eyes, warnings first. Credentials appear as names, never as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from windtunnel.domain.plan import ConfigPlan, Plan
from windtunnel.domain.receipt_text import Block, Receipt, command_lines, table
from windtunnel.domain.role import Role, Route
from windtunnel.domain.task import Task

__all__ = ["receipt"]

NOT_BUILT = "not built yet"
_CONFIG_LINES = 24


def receipt(plan: Plan) -> Receipt:
    """What a person confirms, in reading order."""
    blocks = (
        Block.of("Warnings", list(plan.warnings) or ["none"], at_most=20),
        Block.of("Summary", _summary(plan)),
        Block.of("Commands", [*command_lines(plan.command), *command_lines(plan.run_command)]),
        Block.of("Configs", [line for config in plan.configs for line in _config(plan, config)], at_most=28),
        Block.of("Model roles", _roles(plan), at_most=16),
        Block.of("Credentials", _credentials(plan), at_most=12),
        Block.of("Thinking evidence", _thinking(plan)),
        Block.of("Tasks", _tasks(plan)),
        Block.of("Resources and watchdog", _resources(plan)),
        Block.of("Differences from the baseline", _differences(plan), at_most=12),
        Block.of("Preflight cells", _preflight(plan), at_most=12),
        Block.of("Paths and dashboard", _paths(plan)),
    )
    return Receipt(planIdentity=plan.planIdentity, run_id=plan.run_id, blocks=blocks)


def _summary(plan: Plan) -> list[str]:
    executed = [config.name for config in plan.configs if config.executed]
    states = Counter(planned.state for planned in plan.cells)
    set_aside = f", {states['torn']} unreadable (set aside, run again)" if states["torn"] else ""
    moved = f", {states['quarantine']} of another identity (moved to quarantine)" if states["quarantine"] else ""
    settings, subject = plan.settings, plan.subject
    return [
        f"identity    {plan.planIdentity}",
        f"subject     {subject.name}@{subject.version} {subject.platform}, bundle {_short(subject.bundle)}",
        f"model       {plan.model or 'none'}, thinking {plan.thinking}",
        f"cells       {len(plan.cells)} = {len(executed)} configs x {len(plan.tasks)} tasks x {settings.reps} reps",
        f"            {states['reuse']} reused, {len(plan.cells) - states['reuse']} to run{set_aside}{moved}",
        f"order       {settings.order}, seed {settings.order_seed}; workers {settings.workers}; "
        f"existing results: {settings.existing}; retries: "
        + ("the outcome table's" if settings.cell_retries is None else str(settings.cell_retries)),
        f"estimate    tokens, cost, wall time: {NOT_BUILT}; quota: {NOT_BUILT}",
        f"power       minimum detectable effect: {NOT_BUILT}",
    ]


def _config(plan: Plan, config: ConfigPlan) -> Iterator[str]:
    marks = [mark for mark, holds in (("baseline", config.name == plan.baseline),) if holds]
    marks += [] if config.executed else ["described, not run"]
    head = f"{config.name}{' (' + ', '.join(marks) + ')' if marks else ''}: fingerprint {_short(config.fingerprint)}"
    yield f"{head}, leaf {config.leaf or 'none'}, {len(config.files)} files" + (
        f"; {config.description}" if config.description else ""
    )
    shown = max(2, _CONFIG_LINES // len(plan.configs) - 2)
    for file in config.files[:shown]:
        notes = [
            n
            for n, holds in (("exec", file.executable), ("not given to the subject", not file.reaches_subject))
            if holds
        ]
        overlaid = config.leaf is not None and any(f.path == f"{config.leaf}/{file.path}" for f in config.files)
        notes += ["overlaid by the leaf's"] if overlaid else []
        yield f"  {_short(file.sha256)}  {file.path}" + (f"  ({', '.join(notes)})" if notes else "")
    if len(config.files) > shown:
        yield f"  ... and {len(config.files) - shown} more files; all of them are in the plan file"
    for change in config.overlay[:shown]:
        yield f"  overlay: {change}"
    if len(config.overlay) > shown:
        yield f"  ... and {len(config.overlay) - shown} more overlaid fields; all of them are in the plan file"


def _pairs(plan: Plan) -> list[tuple[str, Role, Route]]:
    """(configs, role, route), equal ones of several configs put together."""
    found: dict[tuple[Role, Route], list[str]] = {}
    for config in plan.configs:
        routes = {route.name: route for route in config.routes}
        for role in config.roles if config.executed else ():
            found.setdefault((role, routes[role.route]), []).append(config.name)
    return [(", ".join(names), role, route) for (role, route), names in found.items()]


def _roles(plan: Plan) -> list[str]:
    pairs = _pairs(plan)
    if not pairs:
        return ["none: this subject calls no model"]
    rows = [("role", "model", "thinking", "route", "configs")]
    rows += [(r.name, f"{r.provider}/{r.model}", str(r.thinking), t.name, _names(names)) for names, r, t in pairs]
    head, *lines = table(rows)
    told = [head]
    for line, (_, role, _) in zip(lines, pairs, strict=True):
        terms = f"billing {role.billing}; bounds per attempt: {_bounds(role)}; {role.activation}; usage from the "
        told += [line, f"    {terms}{role.usage_source}"]
    return told


def _names(names: str) -> str:
    return names if len(names) <= 24 else f"{names[:21]}..."


def _bounds(role: Role) -> str:
    bounds = role.bounds
    told = [
        f"{value} {what}"
        for value, what in (
            (bounds.max_calls, "calls"),
            (bounds.max_tokens, "tokens"),
            (bounds.max_concurrency, "at once"),
        )
        if value is not None
    ]
    return ", ".join(told) or "none"


def _credentials(plan: Plan) -> list[str]:
    lines = []
    for names, role, route in _pairs(plan):
        where = f"replay script {route.script}" if route.kind == "replay" else route.base_url
        who = f"{role.name} of {names}: route {route.name} ({where}), path {route.credential_path}: "
        if route.credential is None:
            lines.append(who + "no credential needed")
        else:
            lines.append(
                who + f"host variable {route.credential} is set; host side only: the container check is the run's "
                "first step, before any model call"
            )
    return lines or ["none needed"]


def _thinking(plan: Plan) -> list[str]:
    if plan.model is None:
        return ["not applicable: no model"]
    return [f"catalogue of levels and documented mappings: {NOT_BUILT}", *_proof(plan)]


def _proof(plan: Plan) -> list[str]:
    return [f"requested {plan.thinking}; the first cell must show it on the wire"] + [
        f"--allow-unproven-thinking {role}: unknown is accepted" for role in plan.settings.allow_unproven_thinking
    ]


def _tasks(plan: Plan) -> list[str]:
    selection = plan.selection
    name = f" {selection.name}" if selection.name else ""
    seed = f", seed {selection.seed}" if selection.seed is not None else ""
    lines = [f"selection: {selection.kind}{name}{seed}: {len(plan.tasks)} tasks"]
    shown = plan.tasks[:10]
    lines += [f"  {task.id}: {_hand_over(plan, task)}" for task in shown]
    rest = Counter(_hand_over(plan, task) for task in plan.tasks[len(shown) :])
    return lines + [f"  ... and {count} more: {text}" for text, count in rest.items()]


def _hand_over(plan: Plan, task: Task) -> str:
    network = plan.settings.verifier_network or task.verifier_network
    what = "declared artifacts cross" if task.hand_over == "artifacts" else "grading: agent-filesystem"
    limits = plan.limits[task.id]
    timeout = plan.settings.agent_timeout_s if plan.settings.agent_timeout_s is not None else task.agent_timeout_s
    seconds = "no time-out" if timeout is None else f"{timeout:g} s"
    return (
        f"{task.hand_over} ({what}); networks: agent {task.agent_network}, verifier {network}; "
        f"{limits.memory_mb} MiB, {seconds}"
    )


def _resources(plan: Plan) -> list[str]:
    settings = plan.settings
    needs = [max(plan.limits[t.id].memory_mb or 0, t.verifier_limits.memory_mb or 0) for t in plan.tasks]
    largest = max(needs, default=0)
    asked = settings.workers * largest + settings.host_reserve_mb
    environment = plan.environment
    version = f" {environment.version}" if environment.version else ""
    cpus = {plan.limits[t.id].cpus for t in plan.tasks}
    pids = {plan.limits[t.id].pids for t in plan.tasks}
    return [
        f"environment {settings.environment}{version}: {environment.isolation or 'isolation unknown, not asked'}",
        f"memory enforced by: {environment.memory_enforced_by or 'unknown'}; cpus {_set(cpus)}; pids {_set(pids)}; "
        "no extra swap",
        f"admission: {settings.workers} workers x {largest} MiB + {settings.host_reserve_mb} MiB host reserve = "
        f"{asked} MiB of {plan.host.get('memory_mb')} MiB",
        f"watchdog: {NOT_BUILT}",
    ]


def _set(values: set[int] | set[float | None]) -> str:
    return ", ".join(sorted("unlimited" if value is None else f"{value:g}" for value in values))


def _differences(plan: Plan) -> list[str]:
    others = [config.name for config in plan.configs if config.executed and config.name != plan.baseline]
    lines = [f"baseline {plan.baseline}"]
    for name in others:
        own = [d for d in plan.differences if d.config == name]
        if not own:
            lines.append(f"{name}: nothing differs; a comparison would show only noise")
        for d in own:
            mark = "declared" if d.declared else "not declared in varies"
            lines.append(
                f"{name}: {d.field}: {_short(d.baseline or 'absent')} -> {_short(d.here or 'absent')} ({mark})"
            )
    return lines if others else [*lines, "no other config"]


def _preflight(plan: Plan) -> list[str]:
    lines = [f"policy {plan.settings.preflight}"]
    first = {entry.cell.config: entry for entry in plan.preflight}
    for config in plan.configs:
        if not config.executed:
            continue
        contract = (
            f"contract {config.contract} {_short(config.contract_sha256)}" if config.contract else "generic checks only"
        )
        entry = first.get(config.name)
        if entry is not None:
            how = "stored: judged again, no model call" if entry.stored else "runs first"
            lines.append(f"{entry.cell.id}: {how}; {contract}")
        elif plan.settings.preflight != "disabled":
            lines.append(f"{config.name}: passed before with this fingerprint; {contract}")
    return lines


def _paths(plan: Plan) -> list[str]:
    paths = plan.paths
    return [
        f"workspace  {paths.workspace}",
        f"results    {paths.results_root}",
        f"state      {paths.run_dir}",
        f"tasks      {paths.tasks_root}",
        f"configs    {paths.config_root}",
        f"plan       {paths.plan_file}",
        f"dashboard  {NOT_BUILT}",
    ]


def _short(value: str) -> str:
    """A hash by its first twelve digits; other text up to 60 characters."""
    if value.startswith("sha256:"):
        digest, _, rest = value.removeprefix("sha256:").partition(" ")
        return f"{digest[:12]}{' ' + rest if rest else ''}"
    return value if len(value) <= 60 else value[:57] + "..."
