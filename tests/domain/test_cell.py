from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from windtunnel.domain.cell import Cell, container_name, folder, model_leaf

NAMES = st.text(st.characters(exclude_categories=()), min_size=1, max_size=60)
CELLS = st.builds(Cell, task=NAMES, config=NAMES, rep=st.integers(0, 999))
KEYS = st.tuples(CELLS, st.integers(1, 99), NAMES, st.sampled_from(["subject", "verifier", "collector"]))


def name(key: tuple[Cell, int, str, str]) -> str:
    cell, attempt, run_id, part = key
    return container_name(cell, attempt=attempt, run_id=run_id, part=part)


@settings(deadline=None)
@given(KEYS)
@example((Cell(task="t" * 300, config="../x y:z", rep=0), 1, "r", "subject"))
@example((Cell(task="🛩", config="é", rep=0), 1, "r", "subject"))
def test_a_container_name_is_one_that_engines_take(key: tuple[Cell, int, str, str]) -> None:
    assert re.fullmatch(r"dsw-[a-z0-9-]*[a-z0-9]", name(key))
    assert len(name(key)) <= 63
    assert f"-r{key[0].rep}-" in name(key)


@settings(deadline=None)
@given(KEYS, KEYS)
@example(
    (Cell(task="a-b", config="c", rep=0), 1, "r", "subject"), (Cell(task="b", config="c-a", rep=0), 1, "r", "subject")
)
@example((Cell(task="A", config="c", rep=0), 1, "r", "subject"), (Cell(task="a", config="c", rep=0), 1, "r", "subject"))
@example(
    (Cell(task="é", config="c", rep=0), 1, "r", "subject"), (Cell(task="e\u0301", config="c", rep=0), 1, "r", "subject")
)
def test_two_things_never_share_a_container_name(
    one: tuple[Cell, int, str, str], other: tuple[Cell, int, str, str]
) -> None:
    assert (name(one) == name(other)) == (one == other)


@settings(deadline=None)
@given(NAMES)
@example("..")
@example("_runs")
@example("a/b")
@example("C:")
@example("e\u0301")
@example("x" * 121)
@example("a\u202eb")
@example("\ud800")
def test_an_accepted_folder_is_one_plain_path_segment(text: str) -> None:
    if folder(text) is not None:
        return
    assert "/" not in text and "\\" not in text and ":" not in text
    assert text[0] not in "._-" and text == text.strip()
    assert 0 < len(text.encode("utf-8")) <= 120
    assert "\n" not in text and "\0" not in text and "\u202e" not in text


@pytest.mark.parametrize("text", ["abs-cache", "fix bug", "t1", "タスク", "🛩", "a.b_c-1"])
def test_ordinary_names_are_folders(text: str) -> None:
    assert folder(text) is None


@pytest.mark.parametrize(
    "text", ["", ".", "..", "../x", "a/b", "a\\b", "a:b", " a", "a ", "_runs", "-x", ".x", "a\nb", "e\u0301", "x" * 121]
)
def test_names_that_could_mean_something_else_are_no_folders(text: str) -> None:
    assert folder(text)


def test_ids_and_leaves() -> None:
    assert Cell(task="t", config="c", rep=2).id == "t/c/rep2"
    assert (model_leaf("openrouter/deepseek/v4"), model_leaf(None)) == ("v4", "none")
