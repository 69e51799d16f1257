"""What a config changes against the baseline, field by field.

Field names, as used by `varies` in config.toml: a file's path (leaf files below `leaf/`), `env.NAME`,
`routes.<provider>.<field>`, `roles.<name>.<field>`, `leaf`. A declared name covers everything below it: `skills`
covers `skills/a/SKILL.md`, `routes` covers every route field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from windtunnel.domain.plan import ConfigFile, ConfigPlan, Difference

__all__ = [
    "changed_files",
    "differences",
    "flatten",
    "identity_differences",
    "told",
    "undeclared_warnings",
]

# Field of a cell's document -> what a person changes; the first that fits. A limit is told as it took effect.
_LABELS = tuple(
    (re.compile(pattern), label)
    for pattern, label in (
        (r"(shared\.settings|limits)\.memory_mb", "--memory-mb"),
        (r"(shared\.settings|limits)\.cpus", "--cpus"),
        (r"(shared\.settings|limits)\.pids", "--pids"),
        (r"limits\.(.*)", r"task.toml, limit \1"),
        (r"shared\.settings\.agent_timeout_s", "--agent-timeout"),
        (r"shared\.settings\.verifier_network", "--verifier-network"),
        (r"shared\.settings\.environment", "--environment"),
        (r"shared\.settings\.measurement_version", "windtunnel's way to measure"),
        (r"shared\.model|config\.roles\[\d+\]\.(?:model|provider)", "--model"),
        (r"shared\.thinking|config\.roles\[\d+\]\.thinking", "--thinking"),
        (r"shared\.subject\.(?:name|version)", "--subject"),
        (r"shared\.subject\.(.*)", r"the subject's \1"),
        (r"config\.leaf", "--leaf"),
        (r"config\.env\.(.*)", r"env, variable \1"),
        (r"config\.roles\[\d+\]\.(?:bounds\.)?(.*)", r"config.toml, role's \1"),
        (r"config\.routes\[\d+\]\.(.*)", r"config.toml or models.json, route's \1"),
        (r"task\.(.*)", r"task.toml, \1"),
    )
)
_TASKS_OWN = {"--memory-mb", "--cpus", "--pids", "--agent-timeout", "--verifier-network"}
# Told as files, not as hashes.
_HASHES = {"config.fingerprint", "task.task_revision", "task.verifier_revision"}


def differences(config: ConfigPlan, baseline: ConfigPlan) -> tuple[Difference, ...]:
    """Every field in which a config is not the baseline, sorted by field."""
    here, there = _fields(config), _fields(baseline)
    return tuple(
        Difference(
            config=config.name,
            field=field,
            baseline=there.get(field),
            here=here.get(field),
            declared=_declared(field, config.varies),
        )
        for field in sorted(here.keys() | there.keys())
        if here.get(field) != there.get(field)
    )


def undeclared_warnings(config: ConfigPlan, found: tuple[Difference, ...]) -> list[str]:
    """What the receipt warns about: changes beyond the declared variable, or several where none is declared."""
    if config.varies:
        extra = [d.field for d in found if not d.declared]
        if not extra:
            return []
        return [f"config {config.name} differs from the baseline beyond varies = {list(config.varies)}: {_list(extra)}"]
    if len(found) > 1:
        return [f"config {config.name} differs from the baseline in {len(found)} fields and declares no `varies`"]
    return []


def flatten(value: Any, prefix: str = "") -> dict[str, str]:
    """A document as dotted field -> text, so that two of them can be compared field by field."""
    value = msgspec.to_builtins(value, str_keys=True) if isinstance(value, msgspec.Struct) else value
    if isinstance(value, dict):
        parts = [flatten(item, f"{prefix}.{key}" if prefix else str(key)) for key, item in value.items()]
        return {key: text for part in parts for key, text in part.items()}
    if isinstance(value, (list, tuple)):
        parts = [flatten(item, f"{prefix}[{number}]") for number, item in enumerate(value)]
        return {key: text for part in parts for key, text in part.items()}
    return {} if value is None else {prefix: str(value)}


def identity_differences(stored: Mapping[str, Any], planned: Mapping[str, Any]) -> dict[str, str]:
    """Two cell documents (see `cell_document`): flag or file -> a line with both values. Hashes of files: left out."""
    then, now = flatten(stored), flatten(planned)
    lines: dict[str, str] = {}
    for name in sorted(then.keys() | now.keys()):
        if then.get(name) != now.get(name) and name not in _HASHES:
            label = _label(name)
            lines.setdefault(label, told(label, then.get(name), now.get(name)))
    return lines


def told(label: str, stored: object, planned: object) -> str:
    """One line: what differs, and both values."""
    unset = "the task's own" if label in _TASKS_OWN else "none"
    return f"{label}: stored {_value(stored, unset)}, planned {_value(planned, unset)}"


def changed_files(stored: ConfigPlan, planned: ConfigPlan) -> list[str]:
    """The paths of files that reach the subject and are not the same in two states of a config, sorted."""
    then, now = ({f.path: _file_text(f) for f in c.files if f.reaches_subject} for c in (stored, planned))
    return sorted(path for path in then.keys() | now.keys() if then.get(path) != now.get(path))


def _label(name: str) -> str:
    for pattern, label in _LABELS:
        found = pattern.fullmatch(name)
        if found:
            return found.expand(label)
    return name.rsplit(".", 1)[-1]


def _value(value: object, unset: str) -> str:
    """As a person writes it: 300 for 300.0, a hash by its first digits."""
    text = unset if value is None else str(value)
    if text.startswith("sha256:"):
        return text.removeprefix("sha256:")[:12]
    return re.sub(r"^(\d+)\.0$", r"\1", text)


def _fields(config: ConfigPlan) -> dict[str, str]:
    fields = {
        _file_field(file, config.leaf): _file_text(file)
        for file in config.files
        if file.reaches_subject and file.path != "env"  # told as env.NAME
    }
    fields |= {f"env.{name}": value for name, value in config.env.items()}
    provider = {role.route: role.provider for role in config.roles}
    for route in config.routes:
        fields |= _inner(route, f"routes.{provider.get(route.name, route.name)}", "name")
    for role in config.roles:
        fields |= _inner(role, f"roles.{role.name}", "name", "route")
    if config.leaf is not None:
        fields["leaf"] = config.leaf
    return fields


def _inner(value: msgspec.Struct, prefix: str, *left_out: str) -> dict[str, str]:
    """The fields of a value but its labels."""
    return {key: text for key, text in flatten(value, prefix).items() if key[len(prefix) + 1 :] not in left_out}


def _file_field(file: ConfigFile, leaf: str | None) -> str:
    return f"leaf/{file.path[len(leaf) + 1 :]}" if leaf and file.path.startswith(leaf + "/") else file.path


def _file_text(file: ConfigFile) -> str:
    return file.sha256 + (" executable" if file.executable else "")


def _declared(field: str, varies: tuple[str, ...]) -> bool:
    return any(field == name or field.startswith((f"{name}/", f"{name}.", f"{name}[")) for name in varies)


def _list(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
