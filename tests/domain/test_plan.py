"""Identity: every field has one class, and the classes mean what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_config, a_plan, a_role, a_route, a_task
from windtunnel.domain.digest import canonical, decode, identity, to_json
from windtunnel.domain.plan import (
    CellIdentities,
    ConfigFile,
    Plan,
    cell_document,
    cell_identity,
    config_fingerprint,
    identity_class,
    plan_identity,
)
from windtunnel.domain.task import Limits

CLASSES = {"cell", "plan", "operational", "mixed"}


def walk(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every field reached through MIXED structs, with its class; the first entry stands for a tuple."""
    for name in value.__struct_fields__:
        kind = identity_class(type(value), name)
        inner = getattr(value, name)
        if kind != "mixed":
            yield (*path, name), kind
        elif isinstance(inner, tuple):
            if inner:
                yield from walk(inner[0], (*path, name, 0))
        else:
            yield from walk(inner, (*path, name))


def other(value: Any) -> Any:
    """A value that is not this one."""
    if isinstance(value, msgspec.Struct):
        first = value.__struct_fields__[0]
        return msgspec.structs.replace(value, **{first: other(getattr(value, first))})
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, Enum):
        return f"{value.value}x"
    return {
        str: f"{value}x",
        int: 7777,
        float: 7777.0,
        tuple: (*value, "x") if isinstance(value, tuple) else (),
        dict: {"x": "y"},
    }[type(value)]


def with_other(value: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        return other(value)
    head, *rest = path
    if isinstance(head, int):
        return (*value[:head], with_other(value[head], tuple(rest)), *value[head + 1 :])
    return msgspec.structs.replace(value, **{head: with_other(getattr(value, head), tuple(rest))})


PLAN = a_plan(limits={"t1": Limits(memory_mb=1), "t2": Limits(memory_mb=1)})
FIELDS = list(walk(PLAN))
# Looked up by or summed up in other fields: tested one by one below.
BY_HAND = {("limits",), ("tasks", 0, "id")}
ALONE = [(path, kind) for path, kind in FIELDS if path not in BY_HAND and "files" not in path]


def cell(plan: Plan) -> str:
    return cell_identity(plan, plan.configs[0], plan.tasks[0])


def test_every_field_of_the_schema_has_exactly_one_class() -> None:
    assert {kind for _, kind in FIELDS} <= CLASSES
    assert len(FIELDS) > 80


def test_a_field_without_a_class_is_an_error() -> None:
    class Bare(msgspec.Struct):
        field: int = 0

    with pytest.raises(KeyError, match=r"Bare\.field has no identity class"):
        identity_class(Bare, "field")


@pytest.mark.parametrize(
    ("path", "kind"), ALONE, ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else value
)
def test_a_changed_field_changes_the_identities_of_its_class(path: tuple[Any, ...], kind: str) -> None:
    changed = with_other(PLAN, path)

    assert (plan_identity(changed) != plan_identity(PLAN)) is (kind != "operational")
    assert (cell(changed) != cell(PLAN)) is (kind == "cell")


def test_limits_are_part_of_the_cell_identity() -> None:
    changed = msgspec.structs.replace(PLAN, limits={"t1": Limits(memory_mb=2), "t2": Limits(memory_mb=1)})

    assert cell(changed) != cell(PLAN)
    assert cell_identity(changed, changed.configs[0], changed.tasks[1]) == cell_identity(
        PLAN, PLAN.configs[0], PLAN.tasks[1]
    )


def test_the_fingerprint_covers_path_content_and_exec_bit_of_files_that_reach_the_subject() -> None:
    file = ConfigFile(path="bin/x", sha256="sha256:1")
    prints = {
        config_fingerprint((changed,))
        for changed in (
            file,
            ConfigFile(path="bin/y", sha256="sha256:1"),
            ConfigFile(path="bin/x", sha256="sha256:2"),
            ConfigFile(path="bin/x", sha256="sha256:1", executable=True),
        )
    }
    contract = ConfigFile(path="smoke.json", sha256="sha256:3", reaches_subject=False)

    assert len(prints) == 4
    assert config_fingerprint((contract, file)) == config_fingerprint((file,))


def test_a_contract_that_is_mended_keeps_the_cell_identity_and_changes_the_plan() -> None:
    config = a_config(files=(ConfigFile(path="smoke.json", sha256="sha256:1", reaches_subject=False),))
    mended = a_config(files=(ConfigFile(path="smoke.json", sha256="sha256:2", reaches_subject=False),))
    before, after = a_plan(configs=(config,)), a_plan(configs=(mended,))

    assert cell(before) == cell(after)
    assert plan_identity(before) != plan_identity(after)


def test_the_label_of_a_route_does_not_change_what_a_cell_is() -> None:
    labelled = a_config(roles=(a_role(route="acme-2"),), routes=(a_route(name="acme-2"),))

    assert cell(a_plan(configs=(labelled,))) == cell(a_plan(configs=(a_config(),)))


def test_other_cells_of_a_plan_do_not_change_a_cell_identity() -> None:
    alone = a_plan(configs=(a_config(),), tasks=(a_task("t1"),))

    assert cell(alone) == cell(a_plan())


def test_many_identities_are_the_single_ones() -> None:
    many = CellIdentities(PLAN)

    assert all(many.of(c, t) == cell_identity(PLAN, c, t) for c in PLAN.configs for t in PLAN.tasks)


def test_the_document_names_what_the_identity_is_made_of() -> None:
    assert set(cell_document(PLAN, PLAN.configs[0], PLAN.tasks[0])) == {"shared", "config", "task", "limits"}


def test_the_identity_survives_the_file() -> None:
    assert plan_identity(decode(to_json(PLAN), Plan)) == plan_identity(PLAN)


def test_identity_is_the_hash_of_canonical_json() -> None:
    assert canonical({"b": 1, "a": [2, "é"]}) == '{"a":[2,"é"],"b":1}'.encode()
    assert identity({"b": 1, "a": 2}) == "sha256:d3626ac30a87e6f7a6428233b3c68299976865fa5508e4267c5415c76af7a772"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(document=st.dictionaries(st.text(), values, max_size=6))
def test_key_order_never_changes_an_identity(document: dict[str, Any]) -> None:
    assert identity(dict(reversed(document.items()))) == identity(document)
    assert json.loads(canonical(document)) == document


@given(number=st.sampled_from([float("nan"), float("inf"), float("-inf")]))
def test_numbers_that_are_none_have_no_identity(number: float) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        identity({"number": number})
