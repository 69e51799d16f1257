"""The receipt: blocks in order, 100 columns, nothing hidden, nothing untrue."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_config, a_plan, a_role, a_task
from windtunnel.domain.cell import Cell
from windtunnel.domain.plan import ConfigFile, Difference, EnvironmentPlan, Plan, PreflightPlan, Settings
from windtunnel.domain.receipt import receipt
from windtunnel.domain.receipt_text import WIDTH, Block, clean, command_lines, to_bytes, to_markdown, to_text
from windtunnel.domain.role import Bounds
from windtunnel.domain.task import Limits


def text_of(plan: Plan) -> str:
    return to_text(receipt(plan))


def block_of(plan: Plan, title: str) -> str:
    return "\n".join(next(b for b in receipt(plan).blocks if b.title == title).lines)


def test_blocks_come_in_the_order_of_reading() -> None:
    titles = [block.title for block in receipt(a_plan()).blocks]

    assert titles == [
        "Warnings",
        "Summary",
        "Commands",
        "Configs",
        "Model roles",
        "Credentials",
        "Thinking evidence",
        "Tasks",
        "Resources and watchdog",
        "Differences from the baseline",
        "Preflight cells",
        "Paths and dashboard",
    ]


def test_parts_that_do_not_exist_say_so() -> None:
    text = text_of(a_plan())

    for part in ("estimate", "quota", "minimum detectable effect", "catalogue", "watchdog", "dashboard"):
        assert re.search(rf"{part}.*not built yet", text), part


def test_identity_and_commands_can_be_copied() -> None:
    plan = a_plan(run_command=("windtunnel", "run", "plans/r1.json", "--confirm", "sha256:" + "b" * 64))

    joined = text_of(plan).replace(" \\\n", " ")

    assert plan.planIdentity in joined
    assert re.search(rf"windtunnel run plans/r1.json --confirm\s+sha256:{'b' * 64}", joined)


def test_a_command_is_broken_between_arguments_and_quoted() -> None:
    lines = command_lines(["windtunnel", "plan", "--run-id", "a b", *["--leaf", "x" * 40] * 4])

    assert all(line.endswith(" \\") for line in lines[:-1])
    assert "'a b'" in lines[0]
    assert max(map(len, lines)) <= WIDTH - 2


def test_ordinary_plans_fit_on_120_lines_of_100_columns() -> None:
    files = tuple(ConfigFile(path=f"skills/s{n}/SKILL.md", sha256="sha256:" + "c" * 64) for n in range(40))
    plan = a_plan(
        configs=tuple(a_config(f"config-{n}", files=files) for n in range(5)),
        baseline="config-0",
        tasks=tuple(a_task(f"task-{n}") for n in range(113)),
        warnings=tuple(f"warning {n} " + "word " * 30 for n in range(5)),
        differences=tuple(
            Difference(config="config-1", field=f"env.X{n}", baseline=None, here="1", declared=False) for n in range(60)
        ),
    )

    lines = text_of(plan).splitlines()

    assert len(lines) <= 120
    assert max(map(len, lines)) <= 100
    assert "more" in text_of(plan)


def test_warnings_come_first_and_none_is_said() -> None:
    assert text_of(a_plan(warnings=("beware",))).splitlines()[1:3] == ["WARNINGS", "  beware"]
    assert text_of(a_plan()).splitlines()[1:3] == ["WARNINGS", "  none"]


def test_the_role_table_has_one_entry_for_equal_roles_and_tells_bounds() -> None:
    plan = a_plan(
        configs=(
            a_config("a"),
            a_config("b"),
            a_config("c", roles=(a_role(bounds=Bounds(max_calls=7, max_tokens=9, max_concurrency=1)),)),
        )
    )

    table = block_of(plan, "Model roles")

    assert table.count("acme/model-1") == 2
    assert "a, b" in table
    assert "7 calls, 9 tokens, 1 at once" in table


def test_a_subject_without_a_model_has_no_roles_and_needs_no_credentials() -> None:
    plan = a_plan(configs=(a_config(roles=(), routes=()),), model=None, thinking="off")

    assert block_of(plan, "Model roles") == "none: this subject calls no model"
    assert block_of(plan, "Credentials") == "none needed"
    assert block_of(plan, "Thinking evidence") == "not applicable: no model"


def test_credentials_are_names_checked_on_the_host_only() -> None:
    told = block_of(a_plan(), "Credentials")

    assert "host variable ACME_API_KEY is set; host side only: the container check is the run's first step" in told


def test_reused_new_torn_and_moved_cells_are_counted_apart() -> None:
    plan = a_plan()
    states = ("reuse", "reuse", "torn", "quarantine", "new", "new", "new", "new")
    cells = tuple(
        msgspec.structs.replace(planned, state=state) for planned, state in zip(plan.cells, states, strict=True)
    )

    told = block_of(msgspec.structs.replace(plan, cells=cells), "Summary")

    assert "8 = 2 configs x 2 tasks x 2 reps" in told
    assert (
        "2 reused, 6 to run, 1 unreadable (set aside, run again), 1 of another identity (moved to quarantine)" in told
    )


def test_admission_is_shown_as_arithmetic() -> None:
    plan = a_plan(
        settings=Settings(environment="docker", workers=3, host_reserve_mb=1000),
        limits={"t1": Limits(memory_mb=2000, cpus=2.0), "t2": Limits(memory_mb=500)},
        environment=EnvironmentPlan(version="20.10", isolation="containers", memory_enforced_by="engine"),
    )

    told = block_of(plan, "Resources and watchdog")

    assert "3 workers x 2000 MiB + 1000 MiB host reserve = 7000 MiB of 16384 MiB" in told
    assert "environment docker 20.10: containers" in told
    assert "cpus 2, unlimited" in told


def test_hand_over_and_verifier_network_are_told_per_task() -> None:
    tasks = (a_task("t1", hand_over="artifacts", verifier_network="none"), a_task("t2"))

    told = block_of(a_plan(tasks=tasks), "Tasks")

    assert "t1: artifacts (declared artifacts cross); networks: agent public, verifier none" in told
    assert "t2: snapshot (grading: agent-filesystem); networks: agent public, verifier public" in told


def test_first_cells_tell_their_contract_and_whether_they_cost_a_call() -> None:
    contract = a_config("a", contract="smoke.json", contract_sha256="sha256:" + "d" * 64)
    first = (PreflightPlan(cell=Cell(task="t1", config="a", rep=0), stored=True),)
    plan = msgspec.structs.replace(a_plan(configs=(contract, a_config("b"))), preflight=first)

    told = block_of(plan, "Preflight cells")

    assert "t1/a/rep0: stored: judged again, no model call; contract smoke.json dddddddddddd" in told
    assert "b: passed before with this fingerprint; generic checks only" in told


def test_overlaid_and_executable_files_are_marked() -> None:
    paths = (("bin/x", True), ("pi-flags", False), ("m/high/pi-flags", False))
    files = tuple(ConfigFile(path=p, sha256="sha256:" + "e" * 64, executable=x) for p, x in paths)

    told = block_of(a_plan(configs=(a_config(files=files, leaf="m/high"),)), "Configs")

    assert "bin/x  (exec)" in told
    assert "pi-flags  (overlaid by the leaf's)" in told


def test_a_baseline_outside_the_batch_is_told() -> None:
    plan = a_plan(configs=(a_config("b", "x"), a_config("a", executed=False)))

    assert "a (baseline, described, not run)" in block_of(plan, "Configs")
    assert "b: nothing differs" in block_of(plan, "Differences from the baseline")


@settings(max_examples=60)
@given(name=st.text(min_size=1, max_size=300), description=st.text(max_size=300))
def test_untrusted_text_never_reaches_a_terminal_raw(name: str, description: str) -> None:
    task = a_task(name)
    plan = a_plan(
        tasks=(task,), limits={name: task.limits}, configs=(a_config("a", description=description),), warnings=(name,)
    )

    text = text_of(plan)

    assert all(character == "\n" or clean(character) == character for character in text)
    assert max(map(len, text.splitlines())) <= WIDTH


def test_markdown_shows_lines_as_code_and_json_is_strict() -> None:
    shown = receipt(a_plan(warnings=("<script>*x*",)))

    assert "    <script>*x*\n" in to_markdown(shown)
    assert json.loads(to_bytes(shown))["planIdentity"] == shown.planIdentity


def test_a_bounded_block_counts_what_it_leaves_out() -> None:
    block = Block.of("T", [str(n) for n in range(10)], at_most=4)

    assert block.lines == ("0", "1", "2", "3", "... and 6 more; all of them are in the plan file")


@pytest.mark.parametrize("text", ["a\x1b[31mb", "a\u202eb", "a\u2028b", "a\nb", "a\x00b", "a\ud800b"])
def test_control_and_direction_characters_become_question_marks(text: str) -> None:
    assert re.fullmatch(r"a\?(\[31m)?b", clean(text))
