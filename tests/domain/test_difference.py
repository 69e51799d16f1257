"""The one-difference check: what a config changes against the baseline."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builders import a_config, a_role, a_route
from windtunnel.domain.difference import differences, flatten, undeclared_warnings
from windtunnel.domain.plan import ConfigFile
from windtunnel.domain.role import Bounds


def fields(here: object, there: object) -> list[str]:
    return [d.field for d in differences(here, there)]  # type: ignore[arg-type]


def test_equal_configs_of_different_names_do_not_differ() -> None:
    assert differences(a_config("b"), a_config("a")) == ()


def test_files_env_routes_roles_and_leaf_are_told_apart() -> None:
    here = a_config(
        "b",
        "other text",
        env={"A": "1"},
        routes=(a_route(base_url="https://other.example.test/v1"),),
        roles=(a_role(bounds=Bounds(max_calls=3)),),
        leaf="m+x/high",
    )

    assert fields(here, a_config("a")) == [
        "env.A",
        "leaf",
        "roles.executor.bounds.max_calls",
        "routes.acme.base_url",
        "system_preamble.md",
    ]


def test_each_side_is_told_with_nothing_where_it_has_nothing() -> None:
    (found,) = differences(a_config("b", env={"A": "1"}), a_config("a"))

    assert (found.config, found.field, found.baseline, found.here) == ("b", "env.A", None, "1")


def test_a_variable_called_name_is_a_difference_too() -> None:
    assert fields(a_config("b", env={"name": "1"}), a_config("a")) == ["env.name"]


def test_leaf_files_are_compared_under_one_name() -> None:
    here = a_config(files=(ConfigFile(path="m+x/high/models.json", sha256="sha256:1"),), leaf="m+x/high")
    there = a_config(files=(ConfigFile(path="m/high/models.json", sha256="sha256:1"),), leaf="m/high")

    assert fields(here, there) == ["leaf"]


def test_an_exec_bit_is_a_difference() -> None:
    here = a_config(files=(ConfigFile(path="bin/x", sha256="sha256:1", executable=True),))
    there = a_config(files=(ConfigFile(path="bin/x", sha256="sha256:1"),))

    assert fields(here, there) == ["bin/x"]


def test_files_that_never_reach_the_subject_do_not_count() -> None:
    here = a_config(files=(ConfigFile(path="smoke.json", sha256="sha256:1", reaches_subject=False),))

    assert fields(here, a_config(files=())) == []


def test_the_label_of_a_route_is_not_a_difference() -> None:
    here = a_config("b", roles=(a_role(route="acme-2"),), routes=(a_route(name="acme-2"),))

    assert fields(here, a_config("a")) == []


def test_a_declared_variable_covers_what_lies_below_it() -> None:
    files = tuple(ConfigFile(path=f"skills/{name}/SKILL.md", sha256="sha256:1") for name in "xy")
    here = a_config("b", files=files, varies=("skills",))

    found = differences(here, a_config("a", files=()))

    assert [d.declared for d in found] == [True, True]
    assert undeclared_warnings(here, found) == []


def test_a_declared_name_does_not_cover_its_namesakes() -> None:
    here = a_config("b", files=(ConfigFile(path="skills2/x", sha256="sha256:1"),), varies=("skills",))

    (warning,) = undeclared_warnings(here, differences(here, a_config("a", files=())))

    assert "beyond varies = ['skills']: skills2/x" in warning


def test_several_changes_without_a_declared_variable_are_a_warning() -> None:
    one, two = a_config("b", env={"A": "1"}), a_config("c", env={"A": "1", "B": "2"})

    assert undeclared_warnings(one, differences(one, a_config())) == []
    (warning,) = undeclared_warnings(two, differences(two, a_config()))
    assert "config c differs from the baseline in 2 fields and declares no `varies`" in warning


@given(env=st.dictionaries(st.text(min_size=1), st.text()), other=st.dictionaries(st.text(min_size=1), st.text()))
def test_the_difference_is_empty_exactly_when_nothing_differs(env: dict[str, str], other: dict[str, str]) -> None:
    assert (differences(a_config(env=env), a_config(env=other)) == ()) is (env == other)


def test_a_document_is_flattened_with_dots_and_indexes() -> None:
    assert flatten({"a": {"b": [1, None, {"c": True}]}}) == {"a.b[0]": "1", "a.b[2].c": "True"}
