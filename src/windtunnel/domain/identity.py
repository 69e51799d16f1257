"""The identity class of every field, and the part of a value that belongs to some classes.

    CELL         in cellIdentity and planIdentity    changes what a cell measures
    PLAN         in planIdentity only                changes what is run, not what a cell measures
    OPERATIONAL  in neither                          where and when
    MIXED        the value is a struct (or a tuple of them) whose own fields have classes

A class is written in the field's annotation; values of other modules have theirs in FOREIGN.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from windtunnel.domain.role import Role, Route
from windtunnel.domain.task import Task

__all__ = ["CELL", "FOREIGN", "MIXED", "OPERATIONAL", "PLAN", "identity_class", "select"]

CELL = msgspec.Meta(extra={"identity": "cell"})
PLAN = msgspec.Meta(extra={"identity": "plan"})
OPERATIONAL = msgspec.Meta(extra={"identity": "operational"})
MIXED = msgspec.Meta(extra={"identity": "mixed"})

# Values whose fields are all CELL but the ones named here. A route's name is only the label that tells it from the
# other routes of its plan; the same cell in another plan may carry another label.
FOREIGN: dict[type, dict[str, str]] = {
    Task: {"warnings": "operational"},
    Role: {"route": "plan"},
    Route: {"name": "plan"},
}


def identity_class(struct: type, field: str) -> str:
    """The identity class of a field: cell, plan, operational or mixed. Raises KeyError when it has none."""
    if struct in FOREIGN and field in struct.__struct_fields__:  # type: ignore[attr-defined]
        return FOREIGN[struct].get(field, "cell")
    hint = get_type_hints(struct, include_extras=True)[field]
    for meta in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
        if isinstance(meta, msgspec.Meta) and meta.extra and "identity" in meta.extra:
            return str(meta.extra["identity"])
    raise KeyError(f"{struct.__name__}.{field} has no identity class")


@cache
def _classes(struct: type) -> tuple[tuple[str, str], ...]:
    return tuple((name, identity_class(struct, name)) for name in struct.__struct_fields__)  # type: ignore[attr-defined]


def select(value: Any, classes: frozenset[str]) -> Any:
    """The part of a value that belongs to the given classes; structs of one class are taken whole."""
    if isinstance(value, tuple):
        return [select(item, classes) for item in value]
    if not isinstance(value, msgspec.Struct):
        return value
    kept: dict[str, Any] = {}
    for name, kind in _classes(type(value)):
        if kind == "mixed":
            kept[name] = select(getattr(value, name), classes)
        elif kind in classes:
            kept[name] = getattr(value, name)
    return kept
