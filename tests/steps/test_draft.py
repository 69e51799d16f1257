"""Drafting: flags and files become a plan, or one clear refusal. No model, no container, no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from drafting import asked, config, config_of, planned, task_of

from builders import TASK_TOML, a_workspace, write_files
from windtunnel.domain.cell import Cell
from windtunnel.domain.plan import Plan, cell_identity, plan_identity
from windtunnel.domain.role import Thinking
from windtunnel.errors import InputWrong, NotBuiltYet
from windtunnel.steps.draft_configs import wanted_subjects
from windtunnel.store.plans import read_plan, write_plan


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return a_workspace(tmp_path)


# ---- the whole


def test_a_plan_is_resolved_and_carries_its_identity(here: Path) -> None:
    plan = planned(here)

    assert plan.planIdentity == plan_identity(plan)
    assert plan.run_command == ("windtunnel", "run", "plans/r1.json", "--confirm", plan.planIdentity)
    assert [c.name for c in plan.configs] == ["a", "b"]
    assert (plan.baseline, plan.thinking, plan.model) == ("a", Thinking.HIGH, "replay/m-1")
    assert len(plan.cells) == 8
    assert all(c.identity == cell_identity(plan, config_of(plan, c), task_of(plan, c)) for c in plan.cells)
    first = next(c for c in plan.cells if c.cell == Cell(task="t1", config="a", rep=0))
    assert first.result_path == str(here / "results/m-1/high/a/t1/rep0/result.json")


def test_the_same_request_gives_the_same_identity_under_another_name(here: Path) -> None:
    other = planned(here, run_id="r2", plan_file=here / "plans/r2.json")

    assert other.planIdentity == planned(here).planIdentity


def test_whole_numbers_for_cpus_do_not_change_the_identity_on_the_way_to_disk(here: Path) -> None:
    plan = planned(here, cpus=2, agent_timeout_s=30)
    write_plan(plan, "")

    assert plan_identity(read_plan(here / "plans/r1.json")) == plan.planIdentity


def test_planning_writes_nothing(here: Path) -> None:
    before = sorted(here.rglob("*"))

    planned(here)

    assert sorted(here.rglob("*")) == before


# ---- model, level, subject


@pytest.mark.parametrize(
    "model", ["m-1", "/m", "acme/", "acme/m/", "a b/c", "acme/\x1b[0m", "acme/.hidden", "acme/x:y"]
)
def test_a_model_that_is_not_provider_and_model_is_refused(here: Path, model: str) -> None:
    with pytest.raises(InputWrong, match="--model"):
        planned(here, model=model)


def test_a_subject_that_calls_models_needs_one(here: Path) -> None:
    with pytest.raises(InputWrong, match="--model is missing: loop calls a model"):
        planned(here, model=None)


@pytest.mark.parametrize("subject", ["oracle", "nop"])
def test_controls_need_no_model_and_think_not(here: Path, subject: str) -> None:
    plan = planned(here, subject, model=None)

    assert (plan.model, plan.thinking) == (None, Thinking.OFF)
    assert all(not c.roles and not c.routes for c in plan.configs)
    assert plan.cells[0].result_path.startswith(str(here / "results/none/off"))


def test_the_oracle_needs_solutions(here: Path) -> None:
    (here / "tasks/t2/solution/solve.sh").unlink()

    with pytest.raises(InputWrong, match=r"oracle runs only tasks with solution/solve\.sh; 1 of 2 have it not: t2"):
        planned(here, "oracle", model=None)
    assert planned(here, "oracle", model=None, all_tasks=False, tasks=("t1",)).cells
    assert planned(here, "nop", model=None).cells


def test_limits_that_the_host_cannot_give_are_refused(here: Path) -> None:
    assert planned(here, cpus=8, agent_timeout_s=7 * 86400, pids=2**22).cells
    for changes in ({"cpus": 8.5}, {"agent_timeout_s": 7 * 86400 + 1}, {"pids": 2**22 + 1}):
        with pytest.raises(InputWrong, match=r"--(cpus 8\.5: this host has 8 cores|agent-timeout 604801|pids 4194305)"):
            planned(here, **changes)


def test_a_level_without_a_model_is_refused(here: Path) -> None:
    with pytest.raises(InputWrong, match="--thinking high without --model"):
        planned(here, "nop", model=None, thinking=Thinking.HIGH)


def test_a_command_line_gets_an_executor_when_a_model_is_given(here: Path) -> None:
    for name in "ab":
        config(here, name, {"command": "agent\n"})

    assert planned(here, "command", model=None).configs[0].roles == ()
    assert planned(here, "command").configs[0].roles[0].name == "executor"


def test_codex_waits_and_openrouter_needs_consent(here: Path) -> None:
    with pytest.raises(NotBuiltYet, match="openai-codex"):
        planned(here, model="openai-codex/gpt")
    with pytest.raises(InputWrong, match="--allow-openrouter"):
        planned(here, model="openrouter/x/m-1")


def test_consent_to_openrouter_is_a_warning_and_the_exception_needs_none(here: Path) -> None:
    for name in "ab":
        config(here, name, {"config.toml": '[routes.openrouter]\nbase_url = "https://openrouter.example.test/v1"\n'})
    environ = {"OPENROUTER_API_KEY": "k"}

    consented = planned(here, model="openrouter/z/glm-5", environ=environ, allow_openrouter=True)
    excepted = planned(here, model="openrouter/deepseek/deepseek-v4-flash", environ=environ)

    assert any("--allow-openrouter" in w for w in consented.warnings)
    assert any("prefer direct Z.AI" in w for w in consented.warnings)
    assert any("openrouter/z/glm-5 goes through it" in w for w in consented.warnings)
    assert not any("openrouter" in w.lower() for w in excepted.warnings)


def test_policy_toml_waits_for_its_part(here: Path) -> None:
    write_files(here, {"policy.toml": ""})

    with pytest.raises(NotBuiltYet, match=r"policy\.toml"):
        planned(here)


def test_a_pin_must_be_the_subject_of_the_plan(here: Path) -> None:
    config(here, "b", {"config.toml": 'subject = "pi@0.80.10"\n'})

    with pytest.raises(InputWrong, match=r"config b is made for pi@0\.80\.10.*--subject pi@0\.80\.10"):
        planned(here)
    assert wanted_subjects(asked(here)) == {"b": "pi@0.80.10"}


def test_what_the_subject_cannot_take_is_refused(here: Path) -> None:
    config(here, "a", {"pi-flags": "--verbose"})

    with pytest.raises(InputWrong, match="config a cannot run on loop@1: pi-flags has no meaning"):
        planned(here)


# ---- configs


def test_the_baseline_may_lie_outside_and_is_described_only(here: Path) -> None:
    plan = planned(here, configs=("b",), baseline="a")

    assert [(c.name, c.executed) for c in plan.configs] == [("b", True), ("a", False)]
    assert {c.cell.config for c in plan.cells} == {"b"}
    assert [d.field for d in plan.differences] == ["system_preamble.md"]


def test_one_declared_difference_is_no_warning_and_more_is(here: Path) -> None:
    assert not any("differs from the baseline" in w for w in planned(here).warnings)
    config(here, "b", {"env": "A=1\n"})

    assert any("config b differs from the baseline beyond varies" in w and "env.A" in w for w in planned(here).warnings)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"configs": ()}, "names no config"),
        ({"configs": ("a", "a")}, "one name in the results tree"),
        ({"configs": ("a", "zz")}, r"config 'zz': no directory .*: a, b"),
        ({"baseline": "zz"}, "config 'zz'"),
        ({"leaves": {"zz": "m"}}, "--leaf zz=m: no config 'zz' here: a, b"),
    ],
)
def test_configs_that_cannot_be_meant_are_refused(here: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputWrong, match=says):
        planned(here, **changes)


def test_names_that_differ_only_in_case_are_refused(here: Path) -> None:
    write_files(here, {"configs/A/env": ""})

    with pytest.raises(InputWrong, match="one name in the results tree"):
        planned(here, configs=("a", "A"))


def test_unused_files_are_a_warning(here: Path) -> None:
    config(here, "a", {"README.md": "x"})

    assert any("config a: 1 entries are not used by anything: README.md" in w for w in planned(here).warnings)


# ---- tasks, limits, admission


def test_local_environments_run_local_tasks_only(here: Path) -> None:
    write_files(here / "tasks/t2", {"task.toml": TASK_TOML.replace("local = true", "local = false")})

    with pytest.raises(InputWrong, match=r"1 of 2 have it not: t2\. Use --environment docker"):
        planned(here)
    assert len(planned(here, environment="docker").tasks) == 2


def test_limits_are_the_flags_else_the_tasks_else_the_default(here: Path) -> None:
    write_files(here / "tasks/t2", {"task.toml": TASK_TOML.replace("memory_mb = 512", "")})

    plain, flagged = planned(here), planned(here, memory_mb=700, cpus=1.5, pids=99)

    assert [plain.limits[t].memory_mb for t in ("t1", "t2")] == [512, 16384]
    assert plain.limits["t1"].pids == 4096
    assert {(x.memory_mb, x.cpus, x.pids) for x in flagged.limits.values()} == {(700, 1.5, 99)}


def test_admission_names_the_largest_number_of_workers_that_fits(here: Path) -> None:
    # 20 % of 4000 MiB stay free: 3200 / 512 = 6.25
    assert planned(here, workers=6, memory_mb_of_host=4000).settings.host_reserve_mb == 800
    with pytest.raises(InputWrong, match=r"--workers 7 x 512 MiB .* The largest that fits is --workers 6"):
        planned(here, workers=7, memory_mb_of_host=4000)


def test_admission_says_when_not_even_one_fits(here: Path) -> None:
    with pytest.raises(InputWrong, match="Not even one fits: lower --memory-mb"):
        planned(here, memory_mb_of_host=500)


def test_the_host_reserve_is_the_smaller_of_12_gib_and_a_fifth_or_the_flags(here: Path) -> None:
    assert planned(here, memory_mb_of_host=200_000).settings.host_reserve_mb == 12 * 1024
    assert planned(here, host_reserve_gb=0.5).settings.host_reserve_mb == 512


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"all_tasks": False}, "exactly one of"),
        ({"tasks": ("t1",)}, "exactly one of"),
        ({"all_tasks": False, "tasks": ("zz",)}, "unknown task 'zz'"),
        ({"all_tasks": False, "tasks": ("../t1",)}, "cannot be used"),
        ({"all_tasks": False, "span": "2:2"}, "no tasks matched"),
        ({"all_tasks": False, "span": "x"}, "--range"),
        ({"all_tasks": False, "sample": 1}, "belong together"),
        ({"run_id": "../x"}, "--run-id"),
        ({"run_id": "_runs"}, "--run-id"),
        ({"capture_bodies": "first"}, "--capture-bodies"),
        ({"allow_unproven_thinking": ("advisor",)}, "no such role here"),
    ],
)
def test_flags_that_cannot_be_meant_are_refused(here: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputWrong, match=says):
        planned(here, **changes)


def test_a_broken_task_is_named_and_never_dropped(here: Path) -> None:
    write_files(here / "tasks/t2", {"task.toml": "version = "})

    with pytest.raises(InputWrong, match="t2"):
        planned(here)


def test_warnings_tell_network_isolation_time_outs_and_disabled_preflight(here: Path) -> None:
    write_files(here / "tasks/t2", {"task.toml": TASK_TOML.replace("timeout_sec = 60", "")})

    told = "\n".join(planned(here, preflight="disabled").warnings)

    assert "2 of 2 tasks: the verifier has the public network (t1, t2)" in told
    assert "1 of 2 tasks: no agent time-out, neither here nor by --agent-timeout (t2)" in told
    assert "environment plain: none at all" in told
    assert "--preflight disabled: verify will not PASS" in told
    assert "public network" not in "\n".join(planned(here, verifier_network="none").warnings)


# ---- order


def cells_of(plan: Plan) -> list[Cell]:
    return [planned.cell for planned in plan.cells]


def test_interleave_keeps_the_sides_of_a_pair_together(here: Path) -> None:
    cells = cells_of(planned(here, reps=8))

    blocks = [cells[n : n + 2] for n in range(0, len(cells), 2)]

    assert all(
        {c.config for c in block} == {"a", "b"} and len({(c.task, c.rep) for c in block}) == 1 for block in blocks
    )
    assert len({block[0].config for block in blocks}) == 2


def test_the_seed_decides_the_order_and_the_selection_does_not(here: Path) -> None:
    whole = cells_of(planned(here, reps=8))
    subset = cells_of(planned(here, reps=8, all_tasks=False, tasks=("t2",)))

    assert [c for c in whole if c.task == "t2"] == subset
    assert cells_of(planned(here, reps=8, order_seed=1)) != whole


@pytest.mark.parametrize("order", ["interleave", "task", "shuffle"])
def test_every_order_holds_every_cell_once(here: Path, order: str) -> None:
    cells = cells_of(planned(here, reps=3, order=order))

    assert len(cells) == len(set(cells)) == 12


def test_order_task_goes_config_by_config(here: Path) -> None:
    cells = cells_of(planned(here, order="task"))

    assert [(c.task, c.config, c.rep) for c in cells[:4]] == [
        ("t1", "a", 0),
        ("t1", "a", 1),
        ("t1", "b", 0),
        ("t1", "b", 1),
    ]
