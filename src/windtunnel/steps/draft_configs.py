"""The configs of a plan: read, checked against subject and policy, resolved into what a cell is given."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from windtunnel.domain.config import Config
from windtunnel.domain.difference import differences, undeclared_warnings
from windtunnel.domain.plan import ConfigPlan, Difference, config_fingerprint
from windtunnel.domain.role import EXECUTOR, Route, Thinking
from windtunnel.errors import InputWrong
from windtunnel.steps.draft_request import Request
from windtunnel.steps.draft_roles import Callers, check_credential, refuse_unmetered, resolve_callers
from windtunnel.store.configs import find_config, read_config, read_toml
from windtunnel.subjects.interface import Subject

__all__ = ["compare_configs", "draft_configs", "wanted_subjects"]


def draft_configs(
    request: Request, *, subject: Subject, thinking: Thinking, environ: Mapping[str, str]
) -> tuple[tuple[ConfigPlan, ...], list[str]]:
    """Every config to run, then the baseline when it lies outside of them, with warnings."""
    directories = _directories(request)
    for name in request.leaves:
        if name not in directories:
            raise InputWrong(f"--leaf {name}={request.leaves[name]}: no config {name!r} here: {', '.join(directories)}")
    executed = {find_config(given, request.config_root).name for given in request.configs}
    # A command line may be an agent: with a model it gets an executor, without one it calls nothing.
    may_call = subject.calls_models or subject.name == "command"
    plans, warnings = [], []
    for name, directory in directories.items():
        config = read_config(
            directory, name=name, model=request.model, thinking=thinking, leaf=request.leaves.get(name)
        )
        refuse_unmetered(config, request.model)
        _check_subject(config, subject)
        callers = resolve_callers(config, model=request.model, thinking=thinking, calls_models=may_call)
        if name in executed:
            for role, route in zip(callers.roles, callers.routes, strict=True):
                check_credential(role, route, environ)
        plans.append(_plan(config, callers, executed=name in executed))
        warnings += _warnings(config, callers)
    configs = tuple(_with_overlay(config, subject, request.model) for config in _with_distinct_routes(plans))
    _check_credential_paths(request, configs)
    return configs, warnings


def _check_credential_paths(request: Request, configs: tuple[ConfigPlan, ...]) -> None:
    routes = sorted({route.name for config in configs if config.executed for route in config.routes})
    for name in request.credential_paths:
        if name not in routes:
            raise InputWrong(
                f"--credential-path {name}=gateway: no route {name!r} in this plan; it has: "
                f"{', '.join(routes) or 'none'}. Name one of them, or leave the flag out."
            )


def _directories(request: Request) -> dict[str, Path]:
    """Config name -> directory, in the order given; the baseline is added when it is not among them."""
    if not request.configs:
        raise InputWrong("--configs names no config. Give at least one, such as --configs a,b.")
    found: dict[str, Path] = {}
    for given in request.configs:
        directory = find_config(given, request.config_root)
        twin = next((name for name in found if name.casefold() == directory.name.casefold()), None)
        if twin is not None:
            raise InputWrong(f"--configs: {given!r} and {twin!r} have one name in the results tree. Rename one.")
        found[directory.name] = directory
    if request.baseline is not None and request.baseline not in found:
        directory = find_config(request.baseline, request.config_root)
        known = found.setdefault(directory.name, directory)
        if known.resolve() != directory.resolve():
            raise InputWrong(f"--baseline-config {request.baseline}: another config of that name runs. Rename one.")
    return found


def _check_subject(config: Config, subject: Subject) -> None:
    pin = config.toml.subject
    if pin is not None and pin not in {subject.name, f"{subject.name}@{subject.version}"}:
        raise InputWrong(
            f"config {config.name} is made for {pin} (config.toml, key subject), the plan is for "
            f"{subject.name}@{subject.version}. Plan with --subject {pin}, or change the pin."
        )
    directory = Path(config.directory)
    why = subject.refuse(directory, directory / config.leaf if config.leaf else None)
    if why:
        raise InputWrong(f"config {config.name} cannot run on {subject.name}@{subject.version}: {'; '.join(why)}")


def _plan(config: Config, callers: Callers, *, executed: bool) -> ConfigPlan:
    contract = next((f.sha256 for f in config.files if f.path == config.contract), "none")
    return ConfigPlan(
        name=config.name,
        directory=config.directory,
        description=config.toml.description,
        fingerprint=config_fingerprint(config.files),
        leaf=config.leaf,
        files=config.files,
        roles=callers.roles,
        routes=callers.routes,
        env=config.env,
        contract=config.contract,
        contract_sha256=contract,
        varies=config.toml.varies,
        executed=executed,
        unused=config.unused,
    )


def _with_overlay(config: ConfigPlan, subject: Subject, model: str | None) -> ConfigPlan:
    """What the harness will change in the config's files is known before anything starts, or planning stops here."""
    executor = next((role for role in config.roles if role.name == EXECUTOR), None)
    if executor is None or model is None:
        return config
    directory = Path(config.directory)
    leaf = directory / config.leaf if config.leaf else None
    return replace(
        config, overlay=tuple(subject.overlay_description(directory, leaf, model=model, route=executor.route))
    )


def _with_distinct_routes(configs: list[ConfigPlan]) -> tuple[ConfigPlan, ...]:
    """One name stands for one route in a run: a second route of a name becomes `<name>-2`, and so on."""
    taken: dict[str, Route] = {}
    renamed = []
    for config in configs:
        labels = {route.name: _label(route, taken) for route in config.routes}
        routes = tuple(replace(route, name=labels[route.name]) for route in config.routes)
        roles = tuple(replace(role, route=labels[role.route]) for role in config.roles)
        renamed.append(replace(config, routes=routes, roles=roles))
    return tuple(renamed)


def _label(route: Route, taken: dict[str, Route]) -> str:
    for number in count(1):
        label = route.name if number == 1 else f"{route.name}-{number}"
        if taken.setdefault(label, route) == route:
            return label
    raise AssertionError("counting does not end")


def _warnings(config: Config, callers: Callers) -> list[str]:
    warnings = []
    if config.unused:
        shown = ", ".join(config.unused[:5]) + (", ..." if len(config.unused) > 5 else "")
        warnings.append(f"config {config.name}: {len(config.unused)} entries are not used by anything: {shown}")
    if callers.unused and callers.roles:
        warnings.append(f"config {config.name}: declared providers that no role uses: {', '.join(callers.unused)}")
    return warnings


def compare_configs(configs: tuple[ConfigPlan, ...], baseline: str) -> tuple[tuple[Difference, ...], list[str]]:
    """The one-difference check of every executed config against the baseline."""
    reference = next(config for config in configs if config.name == baseline)
    found: list[Difference] = []
    warnings: list[str] = []
    for config in configs:
        if config.name != baseline and config.executed:
            own = differences(config, reference)
            found += own
            warnings += undeclared_warnings(config, own)
    return tuple(found), warnings


def wanted_subjects(request: Request) -> dict[str, str]:
    """Config name -> the subject it is pinned to in config.toml, for configs that pin one."""
    directories = [find_config(given, request.config_root) for given in request.configs]
    pins = {directory.name: read_toml(directory).subject for directory in directories}
    return {name: pin for name, pin in pins.items() if pin is not None}
