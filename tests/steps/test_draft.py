"""Drafting: flags and files become a plan, or one clear refusal. No model, no container, no network."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from builders import HASH, TASK_TOML, a_plan, a_result, a_task, a_workspace, write_files
from windtunnel.domain.cell import Cell
from windtunnel.domain.contract import Verdict
from windtunnel.domain.digest import to_json
from windtunnel.domain.outcome import Outcome, Reason
from windtunnel.domain.plan import CellPlan, Plan, Settings, cell_identity, plan_identity
from windtunnel.domain.role import Bounds, Thinking
from windtunnel.environments.interface import EnvironmentFacts
from windtunnel.errors import InputWrong, NotBuiltYet
from windtunnel.steps.draft import _complete, draft
from windtunnel.steps.draft_configs import wanted_subjects
from windtunnel.steps.draft_request import Facts, Request
from windtunnel.store.files import sha256_file
from windtunnel.store.layout import CellDir
from windtunnel.store.plans import read_plan, write_plan
from windtunnel.subjects.registry import find

PLAIN = EnvironmentFacts(name="plain", version="1", isolation="none at all", memory_enforced_by="nothing")
DOCKER = EnvironmentFacts(name="docker", version="20.10", isolation="containers", memory_enforced_by="engine")


def asked(root: Path, **changes: Any) -> Request:
    values: dict[str, Any] = {
        "command": ("windtunnel", "plan"),
        "run_id": "r1",
        "configs": ("a", "b"),
        "environment": "plain",
        "workspace": root,
        "config_root": root / "configs",
        "tasks_root": root / "tasks",
        "results_root": root / "results",
        "state_root": root / "results/_runs",
        "plan_file": root / "plans/r1.json",
        "receipt_file": root / "plans/r1.txt",
        "model": "replay/m-1",
        "all_tasks": True,
        "reps": 2,
    }
    return Request(**(values | changes))


def planned(root: Path, subject: str = "loop", environ: dict[str, str] | None = None, **changes: Any) -> Plan:
    memory = changes.pop("memory_mb_of_host", 64 * 1024)
    request = asked(root, **changes)
    return draft(
        request,
        subject=find(subject),
        environment_facts=DOCKER if request.environment == "docker" else PLAIN,
        facts=Facts(
            environ=environ or {},
            now="2026-12-01T00:00:00.000Z",
            memory_mb=memory,
            cpus=8,
            platform="linux/amd64",
            bundle=HASH,
            versions={"windtunnel": "0.1.0", "git": None},
        ),
    )


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return a_workspace(tmp_path)


def config(root: Path, name: str, files: dict[str, str]) -> None:
    write_files(root / "configs" / name, files)


def store(plan: Plan, cell: CellPlan, **changes: Any) -> Path:
    path = Path(cell.result_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_json(a_result(plan, cell, **changes)))
    return path


def states(plan: Plan) -> Counter[str]:
    return Counter(cell.state for cell in plan.cells)


# ---- the whole


def test_a_plan_is_resolved_and_carries_its_identity(here: Path) -> None:
    plan = planned(here)

    assert plan.planIdentity == plan_identity(plan)
    assert plan.run_command == ("windtunnel", "run", "plans/r1.json", "--confirm", plan.planIdentity)
    assert [c.name for c in plan.configs] == ["a", "b"]
    assert (plan.baseline, plan.thinking, plan.model) == ("a", Thinking.HIGH, "replay/m-1")
    assert len(plan.cells) == 8
    assert all(c.identity == cell_identity(plan, _config(plan, c), _task(plan, c)) for c in plan.cells)
    first = next(c for c in plan.cells if c.cell == Cell(task="t1", config="a", rep=0))
    assert first.result_path == str(here / "results/m-1/high/a/t1/rep0/result.json")


def _config(plan: Plan, cell: CellPlan) -> Any:
    return next(c for c in plan.configs if c.name == cell.cell.config)


def _task(plan: Plan, cell: CellPlan) -> Any:
    return next(t for t in plan.tasks if t.id == cell.cell.task)


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


# ---- other callers of models


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"m-1/high/advisor.json": "{}"}, r"role advisor.*m-1/high/advisor\.json"),
        ({"m-1/high/settings.json": '{"observational-memory": {"passive": true}}'}, "observer, reflector, dropper"),
        ({"m-1/high/settings.json": '{"packages": ["npm:x"]}'}, "packages"),
        ({"m-1/high/settings.json": '{"extensions": ["./x.ts"]}'}, "no role covers"),
        ({"extensions/worker.ts": "x"}, r"no role covers.*extensions/worker\.ts"),
        ({"config.toml": "[[roles]]\nname = 'observer'\n"}, "role 'observer'"),
    ],
)
def test_a_config_that_needs_another_caller_is_refused(here: Path, files: dict[str, str], says: str) -> None:
    route = {"m-1/high/models.json": '{"providers": {"replay": {"baseUrl": "http://127.0.0.1:1/v1"}}}'}
    config(here, "c", (route if "config.toml" not in files else {}) | files)

    with pytest.raises(NotBuiltYet, match=says):
        planned(here, "pi", configs=("c",))


# ---- routes and credentials


def test_the_route_of_config_toml_wins_over_models_json(here: Path) -> None:
    models = {"providers": {"acme": {"baseUrl": "https://leaf.test/v1", "apiKey": "${LEAF_KEY}"}, "idle": {}}}
    files = {"m-1/high/models.json": json.dumps(models)}
    config(here, "c", files)
    config(
        here, "d", files | {"config.toml": '[routes.acme]\nbase_url = "https://toml.test/v1/"\ncredential = "TOML_KEY"'}
    )

    plan = planned(
        here, model="acme/m-1", configs=("c", "d"), environ={"LEAF_KEY": "k1", "TOML_KEY": "k2"}, thinking=Thinking.HIGH
    )

    routes = [c.routes[0] for c in plan.configs]
    assert [(r.base_url, r.credential) for r in routes] == [
        ("https://leaf.test/v1", "LEAF_KEY"),
        ("https://toml.test/v1", "TOML_KEY"),
    ]
    assert [r.name for r in routes] == ["acme", "acme-2"]
    assert [c.roles[0].route for c in plan.configs] == ["acme", "acme-2"]
    assert any("declared providers that no role uses: idle" in w for w in plan.warnings)


def test_a_model_of_its_own_address_is_called_there(here: Path) -> None:
    own = {"baseUrl": "https://all.test", "apiKey": "$K_KEY", "models": [{"id": "m-1", "baseUrl": "https://own.test"}]}
    config(here, "c", {"m-1/high/models.json": json.dumps({"providers": {"acme": own}})})

    plan = planned(here, model="acme/m-1", configs=("c",), environ={"K_KEY": "k"})

    assert plan.configs[0].routes[0].base_url == "https://own.test"


def test_an_unknown_provider_is_a_question_with_two_answers(here: Path) -> None:
    with pytest.raises(InputWrong, match=r"where does provider 'acme' live.*\[routes\.acme\].*models\.json"):
        planned(here, model="acme/m-1")


@pytest.mark.parametrize(
    ("route", "says"),
    [
        (
            'dialect = "anthropic-messages"\nbase_url = "https://x.test"',
            "dialect 'anthropic-messages' is not built yet",
        ),
        ('base_url = "ftp://x.test"', "expected http"),
        ('base_url = "https://u:hunter2@x.test"', "holds a user or password"),
        ('base_url = "https://x.test:port/"', "not a URL"),
        ('base_url = "https://x.test/?a=1"', "nothing more"),
        ('credential = "A_KEY"', "takes `base_url`"),
        ('kind = "replay"', "takes `script`"),
        ('base_url = "https://x.test"', "which credential does x.test want"),
        ('base_url = "https://x.test"\ncredential = "sk-hunter2-hunter2"', "the NAME of a host variable"),
    ],
)
def test_a_route_that_cannot_be_right_is_refused(here: Path, route: str, says: str) -> None:
    config(here, "c", {"config.toml": f"[routes.acme]\n{route}\n"})

    with pytest.raises(InputWrong, match=says) as caught:
        planned(here, model="acme/m-1", configs=("c",))
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    "route", ['base_url = "http://127.0.0.1:9/v1"', 'base_url = "https://x.test"\ncredential = "none"']
)
def test_a_server_without_keys_needs_no_credential(here: Path, route: str) -> None:
    config(here, "c", {"config.toml": f"[routes.acme]\n{route}\n"})

    plan = planned(here, model="acme/m-1", configs=("c",))

    assert plan.configs[0].routes[0].credential is None
    assert plan.configs[0].roles[0].billing == "local"


def test_a_redirected_known_provider_keeps_its_own_variable(here: Path) -> None:
    config(here, "c", {"m-1/high/models.json": '{"providers": {"zai": {"baseUrl": "https://zai.test"}}}'})

    with pytest.raises(InputWrong, match="role executor, route zai: host variable ZAI_API_KEY is not set. Export it"):
        planned(here, model="zai/m-1", configs=("c",))
    assert planned(here, model="zai/m-1", configs=("c",), environ={"ZAI_API_KEY": "k"}).configs[0].routes[0].credential


@pytest.mark.parametrize("value", ["", "canary with space", "canary\n", "\tcanary", "none"])
def test_a_credential_of_the_wrong_shape_is_refused_and_not_shown(here: Path, value: str) -> None:
    config(here, "c", {"config.toml": '[routes.acme]\nbase_url = "https://x.test"\ncredential = "ACME_KEY"\n'})

    with pytest.raises(InputWrong, match="role executor, route acme: host variable ACME_KEY") as caught:
        planned(here, model="acme/m-1", configs=("c",), environ={"ACME_KEY": value})
    assert "canary" not in caught.value.message


def test_the_value_of_a_credential_is_nowhere_in_the_plan(here: Path) -> None:
    config(here, "c", {"config.toml": '[routes.acme]\nbase_url = "https://x.test"\ncredential = "ACME_KEY"\n'})

    plan = planned(here, model="acme/m-1", configs=("c",), environ={"ACME_KEY": "canary-4711"})

    assert b"canary-4711" not in to_json(plan)
    assert b"ACME_KEY" in to_json(plan)


def test_bounds_and_billing_of_the_executor_are_taken_over(here: Path) -> None:
    toml = '[routes.replay]\nkind = "replay"\nscript = "replay.json"\n[[roles]]\nname = "executor"\nmax_calls = 9\n'
    config(here, "a", {"config.toml": toml + 'billing = "subscription"\n'})

    role = planned(here, configs=("a",)).configs[0].roles[0]

    assert (role.bounds, role.billing) == (Bounds(max_calls=9), "subscription")


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

    with pytest.raises(InputWrong, match="1 of 2 have it not: t2. Use --environment docker"):
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
    with pytest.raises(InputWrong, match="--workers 7 x 512 MiB .* The largest that fits is --workers 6"):
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
    assert "--preflight disabled" in told
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


# ---- what is there already


def test_equal_results_are_reused_with_their_hash(here: Path) -> None:
    before = planned(here)
    path = store(before, before.cells[0])

    plan = planned(here)

    assert states(plan) == {"reuse": 1, "new": 7}
    assert plan.cells[0].result_sha256 == sha256_file(path)
    assert plan_identity(msgspec.structs.replace(plan, preflight=before.preflight)) == before.planIdentity


def test_more_reps_and_other_subsets_reuse_what_is_there(here: Path) -> None:
    before = planned(here, all_tasks=False, tasks=("t1",), configs=("a",), reps=1)
    store(before, before.cells[0])

    assert states(planned(here, reps=3)) == {"reuse": 1, "new": 11}


def test_an_invalid_result_is_run_again(here: Path) -> None:
    before = planned(here)
    store(before, before.cells[0], outcome=Outcome.of(Reason.ENGINE_ERROR), reward_binary=None, reward_partial=None)

    assert states(planned(here)) == {"new": 8}


@pytest.mark.parametrize("data", [b"", b"{", b"null", b'{"schemaVersion": 1}', b"\xff", b'{"a": NaN}'])
def test_an_unreadable_result_is_torn_and_not_trusted(here: Path, data: bytes) -> None:
    path = Path(planned(here).cells[0].result_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)

    assert planned(here).cells[0].state == "torn"
    assert path.read_bytes() == data


def test_a_result_of_a_newer_schema_is_not_trusted(here: Path) -> None:
    plan = planned(here)
    store(plan, plan.cells[0], schemaVersion=2)

    assert planned(here).cells[0].state == "torn"


def test_a_result_with_an_agents_lone_surrogate_is_still_read(here: Path) -> None:
    plan = planned(here)
    store(plan, plan.cells[0], legacy={"said": "\ud800"})

    assert planned(here).cells[0].state == "reuse"


def test_a_result_of_another_identity_is_refused_with_fields_and_ways_out(here: Path) -> None:
    before = planned(here)
    for cell in before.cells:
        store(before, cell)
    config(here, "b", {"system_preamble.md": "you are someone else"})

    with pytest.raises(InputWrong) as caught:
        planned(here)

    told = caught.value.message
    assert told.startswith("4 planned cells hold results of another identity")
    assert "/b/t1/rep0/result.json: differs in config_fingerprint" in told
    assert "and 1 more" in told
    assert "--results-root" in told and "--existing quarantine" in told


def test_quarantine_marks_only_what_cannot_be_reused(here: Path) -> None:
    before = planned(here)
    for cell in before.cells:
        store(before, cell)
    config(here, "b", {"system_preamble.md": "you are someone else"})

    assert states(planned(here, existing="quarantine")) == {"reuse": 4, "quarantine": 4}


def test_a_changed_verifier_alone_offers_the_regrade_that_is_not_there_yet(here: Path) -> None:
    before = planned(here)
    store(before, before.cells[0])
    write_files(here / "tasks/t1", {"tests/test.sh": "exit 1\n"})

    with pytest.raises(InputWrong, match=r"differs in verifierRevision\n.*`regrade` is not built yet"):
        planned(here)


def test_a_changed_limit_is_named_from_the_plan_of_the_former_run(here: Path) -> None:
    before = planned(here)
    store(before, before.cells[0])
    write_files(here / "results/_runs/r1", {"plan.json": to_json(before).decode()})

    with pytest.raises(InputWrong, match=r"differs in .*limits\.memory_mb"):
        planned(here, memory_mb=700)


def test_a_changed_limit_without_that_plan_is_told_as_far_as_known(here: Path) -> None:
    before = planned(here)
    store(before, before.cells[0])

    with pytest.raises(InputWrong, match="differs in a limit, time-out, network, route or image"):
        planned(here, memory_mb=700)


def test_models_of_one_leaf_name_collide_on_purpose(here: Path) -> None:
    before = planned(here)
    store(before, before.cells[0])
    for name in "ab":
        config(here, name, {"config.toml": '[routes.other]\nkind = "replay"\nscript = "replay.json"\n'})

    with pytest.raises(InputWrong, match="differs in .*model"):
        planned(here, model="other/m-1")


def test_a_result_that_says_it_is_another_cell_is_not_reused(here: Path) -> None:
    plan = planned(here)
    store(plan, plan.cells[0], rep=7)

    with pytest.raises(InputWrong, match="differs in rep"):
        planned(here)


# ---- first cells


def verdict(plan: Plan, cell: CellPlan, **changes: Any) -> None:
    config = _config(plan, cell)
    path = CellDir(Path(cell.result_path).parent)
    values: dict[str, Any] = {
        "config": config.name,
        "cell": cell.cell.id,
        "run_id": "r1",
        "config_fingerprint": config.fingerprint,
        "subject_bundle": plan.subject.bundle,
        "model": plan.model,
        "thinking": str(plan.thinking),
        "contract_sha256": config.contract_sha256,
        "result_sha256": sha256_file(path.result),
        "assertions": (),
        "passed": True,
        "judged_at": "2026-12-01T00:00:00.000Z",
    }
    path.verdict.write_bytes(to_json(Verdict(**(values | changes))))


def first_a(plan: Plan) -> CellPlan:
    return next(c for c in plan.cells if c.cell == Cell(task="t1", config="a", rep=0))


def preflight(plan: Plan) -> list[tuple[str, bool]]:
    return [(entry.cell.id, entry.stored) for entry in plan.preflight]


def test_new_configs_run_one_cell_first(here: Path) -> None:
    assert preflight(planned(here)) == [("t1/a/rep0", False), ("t1/b/rep0", False)]
    assert planned(here, preflight="disabled").preflight == ()


def test_a_config_that_passed_needs_no_first_cell_unless_required(here: Path) -> None:
    before = planned(here)
    store(before, first_a(before))
    verdict(before, first_a(before))

    assert preflight(planned(here)) == [("t1/b/rep0", False)]
    assert preflight(planned(here, preflight="required")) == [("t1/a/rep0", True), ("t1/b/rep0", False)]
    assert preflight(planned(here, all_tasks=False, tasks=("t2",))) == [("t2/b/rep0", False)]


@pytest.mark.parametrize(
    "changes",
    [
        {"passed": False},
        {"config_fingerprint": HASH},
        {"subject_bundle": "sha256:0"},
        {"model": "other/m-1"},
        {"thinking": "low"},
        {"contract_sha256": "sha256:0"},
        {"result_sha256": "sha256:0"},
    ],
)
def test_a_verdict_on_anything_else_does_not_count(here: Path, changes: dict[str, Any]) -> None:
    before = planned(here)
    store(before, first_a(before))
    verdict(before, first_a(before), **changes)

    assert preflight(planned(here))[0] == ("t1/a/rep0", True)


def test_a_torn_verdict_does_not_count(here: Path) -> None:
    before = planned(here)
    path = store(before, first_a(before))
    (path.parent / "smoke-verdict.json").write_text("{")

    assert preflight(planned(here))[0] == ("t1/a/rep0", True)


def test_a_stored_cell_is_taken_before_a_new_one(here: Path) -> None:
    before = planned(here)
    store(before, next(c for c in before.cells if c.cell == Cell(task="t2", config="a", rep=0)))

    assert preflight(planned(here)) == [("t2/a/rep0", True), ("t1/b/rep0", False)]


# ---- numbers to meet


def test_ten_thousand_cells_with_five_thousand_finished_take_two_seconds(tmp_path: Path) -> None:
    tasks = tuple(a_task(f"t{n}") for n in range(1000))
    settings = Settings(environment="plain", reps=5)
    whole = a_plan(tmp_path, tasks=tasks, settings=settings)
    for cell in whole.cells[:5000]:
        store(whole, cell)
    bare = a_plan(tmp_path, tasks=tasks, settings=settings, with_cells=False)

    began = time.process_time()
    plan = _complete(bare)
    write_plan(plan, "")
    took = time.process_time() - began

    assert states(plan) == {"reuse": 5000, "new": 5000}
    assert took < 2
    assert psutil.Process().memory_info().rss < 600 * 2**20  # this process holds the whole test suite as well
