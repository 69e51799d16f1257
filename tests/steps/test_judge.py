"""A smoke cell is judged on what it left on disk, and no verdict is ever overwritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders import a_role
from run_trees import RunTree, a_tree, some_calls, written_config
from windtunnel.domain.contract import Contract, Verdict
from windtunnel.domain.digest import to_json, to_line
from windtunnel.domain.result import AgentFacts, Result
from windtunnel.domain.wire import CallStarted
from windtunnel.steps.judge import assess, judge
from windtunnel.store.files import read_json, sha256_file

CELL = "t1/a/rep0"
NOW = "2026-12-01T00:00:00.000Z"


@pytest.fixture
def tree(tmp_path: Path) -> RunTree:
    return a_tree(tmp_path / "w", until="smoke")


def assessed(tree: RunTree, contract: Contract | None = None, **changes: Any) -> Verdict:
    config = msgspec.structs.replace(tree.plan.configs[0], **changes)
    calls = bool(config.roles)
    return assess(tree.dir(CELL), plan=tree.plan, config=config, contract=contract, calls_models=calls, now=NOW)


def failed(verdict: Verdict) -> list[str]:
    assert verdict.passed is not any(a.passed is False for a in verdict.assertions)
    return [a.kind for a in verdict.assertions if a.passed is False]


def edit_result(tree: RunTree, **changes: Any) -> None:
    path = tree.dir(CELL).result
    path.write_bytes(to_json(msgspec.structs.replace(read_json(path, Result), **changes)))


def edit_calls(tree: RunTree, **changes: Any) -> None:
    calls = [
        msgspec.structs.replace(r, **changes) if isinstance(r, CallStarted) else r for r in some_calls(f"{CELL}#1")
    ]
    tree.attempt(CELL).wire.write_bytes(b"".join(map(to_line, calls)))


def test_a_verdict_says_what_it_was_made_of(tree: RunTree) -> None:
    verdict = read_json(tree.dir(CELL).verdict, Verdict)
    config = tree.plan.configs[0]

    assert verdict.passed
    assert verdict.cell == CELL
    assert verdict.config_fingerprint == config.fingerprint
    assert verdict.contract_sha256 == config.contract_sha256
    assert verdict.result_sha256 == sha256_file(tree.dir(CELL).result)
    assert {a.kind for a in verdict.assertions} == {
        "settled",
        "graded",
        "outcome_valid",
        "usage_above_zero",
        "session_present",
        "wire_records_present",
        "thinking_consistent:executor",
        "role_seen:executor",
        "requireFiles",
        "requireRepoText",
    }


@pytest.mark.parametrize(
    ("agent", "passes"),
    [
        (AgentFacts(exit=0, settled=True), True),
        (AgentFacts(exit=1, settled=True), True),
        (AgentFacts(exit=0, settled=False), False),
        (AgentFacts(exit=0, settled=None), False),
        (AgentFacts(exit=0, settled=True, timed_out=True), False),
    ],
)
def test_an_exit_code_does_not_settle_a_subject(tree: RunTree, agent: AgentFacts, passes: bool) -> None:
    edit_result(tree, agent=agent)

    assert failed(assessed(tree)) == ([] if passes else ["settled"])


def test_a_session_that_is_empty_is_no_session(tree: RunTree) -> None:
    (tree.attempt(CELL).session / "s.jsonl").write_bytes(b"")

    assert failed(assessed(tree)) == ["session_present"]


def test_without_wire_records_nothing_that_they_carry_is_there(tree: RunTree) -> None:
    tree.attempt(CELL).wire.unlink()

    assert failed(assessed(tree)) == [
        "usage_above_zero",
        "wire_records_present",
        "thinking_consistent:executor",
        "role_seen:executor",
    ]


def test_damaged_wire_records_are_told_as_such(tree: RunTree) -> None:
    tree.attempt(CELL).wire.write_bytes(b"{}\n")

    broken = next(a for a in assessed(tree).assertions if a.kind == "wire_records_present")

    assert broken.passed is False
    assert "line 1" in broken.found


def test_another_level_on_the_wire_fails_the_smoke_and_says_what_was_sent(tree: RunTree) -> None:
    edit_calls(tree, thinking_sent="low")

    verdict = assessed(tree)

    assert failed(verdict) == ["thinking_consistent:executor"]
    assert next(a.found for a in verdict.assertions if a.passed is False) == (
        "unknown: requested high, on the wire reasoning_effort=low"
    )


def test_an_unknown_level_passes_only_where_the_plan_allows_it(tree: RunTree) -> None:
    edit_calls(tree, thinking_sent=None, thinking_field=None)
    assert failed(assessed(tree)) == ["thinking_consistent:executor"]

    settings = msgspec.structs.replace(tree.plan.settings, allow_unproven_thinking=("executor",))
    tree.plan = msgspec.structs.replace(tree.plan, settings=settings)

    assert failed(assessed(tree)) == []


def test_a_required_role_that_never_called_is_missed_and_a_model_directed_one_is_not(tree: RunTree) -> None:
    advisor = a_role(name="advisor")
    directed = msgspec.structs.replace(advisor, activation="model-directed")

    assert failed(assessed(tree, roles=(a_role(), advisor))) == [
        "thinking_consistent:advisor",
        "role_seen:advisor",
    ]
    assert failed(assessed(tree, roles=(a_role(), directed))) == []


def test_without_a_result_nothing_passes_on_a_word(tree: RunTree) -> None:
    tree.dir(CELL).result.unlink()

    verdict = assessed(tree)

    assert failed(verdict) == ["settled", "graded", "outcome_valid"]
    assert verdict.result_sha256 is None


def test_a_subject_without_roles_is_judged_by_settled_and_graded_alone(tmp_path: Path) -> None:
    config = written_config(tmp_path / "w", "a", roles=(), routes=(), contract={})
    tree = a_tree(tmp_path / "w", until="smoke", configs=(config,))

    verdict = assessed(tree)

    assert [(a.kind, a.passed) for a in verdict.assertions if a.passed is not None] == [
        ("settled", True),
        ("graded", True),
    ]
    assert {a.found for a in verdict.assertions if a.passed is None} == {"not applicable"}
    assert verdict.passed


def judged(tree: RunTree, **changes: Any) -> Verdict:
    config = msgspec.structs.replace(tree.plan.configs[0], **changes)
    return judge(tree.dir(CELL), plan=tree.plan, config=config, contract=Contract(), calls_models=True, now=NOW)


def test_a_former_verdict_is_kept_under_a_number(tree: RunTree) -> None:
    directory = tree.dir(CELL)
    first = directory.verdict.read_bytes()

    judged(tree, contract_sha256="sha256:1")
    second = directory.verdict.read_bytes()
    judged(tree, contract_sha256="sha256:2")

    assert directory.verdict.with_name("smoke-verdict.1.json").read_bytes() == first
    assert directory.verdict.with_name("smoke-verdict.2.json").read_bytes() == second
    assert json.loads(directory.verdict.read_bytes())["contract_sha256"] == "sha256:2"


def test_the_same_finding_is_not_made_younger(tree: RunTree) -> None:
    """A resume judges again; the verdict that let the batch start must stay as old as it is."""
    before = judged(tree)

    config = tree.plan.configs[0]
    again = judge(
        tree.dir(CELL),
        plan=tree.plan,
        config=config,
        contract=Contract(),
        calls_models=True,
        now="2027-01-01T00:00:00.000Z",
    )

    assert again == before
    assert not tree.dir(CELL).verdict.with_name("smoke-verdict.2.json").exists()


def test_a_damaged_former_verdict_is_kept_too(tree: RunTree) -> None:
    tree.dir(CELL).verdict.write_bytes(b"{torn")

    judged(tree)

    assert tree.dir(CELL).verdict.with_name("smoke-verdict.1.json").read_bytes() == b"{torn"
