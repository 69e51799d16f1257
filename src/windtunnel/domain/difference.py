"""What a config changes against the baseline, field by field.

Field names, as used by `varies` in config.toml: a file's path (leaf files below `leaf/`), `env.NAME`,
`routes.<provider>.<field>`, `roles.<name>.<field>`, `leaf`. A declared name covers everything below it: `skills`
covers `skills/a/SKILL.md`, `routes` covers every route field.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windtunnel.domain.plan import ConfigFile, ConfigPlan, Difference

__all__ = ["differences", "flatten", "undeclared_warnings"]


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
