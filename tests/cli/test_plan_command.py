"""`windtunnel plan` and `run_batch` at the command line: text and exit codes, for good and for bad input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from builders import a_workspace, write_files
from windtunnel.cli.main import main, windtunnel
from windtunnel.cli.run_batch import run_batch_command
from windtunnel.domain.plan import plan_identity
from windtunnel.store.plans import read_plan

GOOD = ["--subject", "loop", "--model", "replay/m-1", "--configs", "a,b", "--all-tasks", "--environment", "plain"]
GOOD += ["--run-id", "r1"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINDTUNNEL_BUNDLES", str(Path.home() / ".cache/windtunnel/bundles"))
    monkeypatch.chdir(a_workspace(tmp_path))
    return tmp_path


def ends(arguments: list[str], command: click.Command = windtunnel) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments, command)
    return int(caught.value.code or 0)


def good_with(*arguments: str) -> list[str]:
    """The good command with an option's value replaced, or with more arguments."""
    kept = list(GOOD)
    if arguments and arguments[0] in kept:
        at = kept.index(arguments[0])
        del kept[at : at + 2]
    return [*kept, *arguments]


def plan(*arguments: str) -> int:
    return ends(["plan", *arguments])


def test_a_plan_is_written_with_its_receipt_and_the_command_that_confirms_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(*GOOD, "--reps", "2") == 0

    shown = capsys.readouterr().out
    stored = read_plan(here / "plans/r1.json")
    assert stored.planIdentity == plan_identity(stored)
    assert stored.command == ("windtunnel", "plan", *GOOD, "--reps", "2")
    assert f"--confirm \\\n    {stored.planIdentity}" in shown
    assert shown.startswith((here / "plans/r1.txt").read_text())
    assert not (here / "results").exists()


@pytest.mark.parametrize("form", ["json", "markdown"])
def test_the_receipt_comes_in_other_forms(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(*GOOD, "--format", form) == 0

    shown = capsys.readouterr().out
    assert json.loads(shown)["run_id"] == "r1" if form == "json" else shown.startswith("# Launch receipt")


def test_a_run_without_a_name_is_named_from_the_time(here: Path) -> None:
    assert plan(*GOOD[:-2]) == 0

    (path,) = (here / "plans").glob("*.json")
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", path.stem)


def test_places_of_plan_and_receipt_can_be_chosen(here: Path) -> None:
    assert plan(*GOOD, "--plan-out", "x/p.json", "--receipt-out", "y") == 0

    assert (here / "x/p.json").is_file()
    assert (here / "y/r1.txt").is_file()
    assert read_plan(here / "x/p.json").run_command[2] == "x/p.json"


def test_a_control_needs_no_model(here: Path) -> None:
    assert plan("--subject", "nop", "--configs", "a", "--all-tasks", "--environment", "plain", "--run-id", "n") == 0

    assert read_plan(here / "plans/n.json").thinking == "off"


def test_the_subject_may_come_from_the_config(here: Path) -> None:
    write_files(here / "configs/c", {"config.toml": 'subject = "nop@1"\n'})

    assert plan("--configs", "c", "--tasks", "t1", "--environment", "plain", "--run-id", "p") == 0

    assert read_plan(here / "plans/p.json").subject.name == "nop"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--subject", "pie"], "no subject 'pie'"),
        (["--subject", "loop@9"], "subject loop@9 does not exist"),
        (["--subject", "a b"], "expected NAME or NAME@VERSION"),
        (["--model", "m"], "--model 'm'"),
        (["--thinking", "ultra"], "'ultra' is not one of"),
        (["--configs", "zz"], "config 'zz'"),
        (["--configs", ","], "names no config"),
        (["--baseline-config", "zz"], "config 'zz'"),
        (["--config-root", "nowhere"], "Configs in"),
        (["--leaf", "a"], "--leaf 'a': expected CONFIG=NAME"),
        (["--leaf", "a=zz"], "no such leaf"),
        (["--tasks", "t1"], "exactly one of"),
        (["--subset", "s"], "exactly one of"),
        (["--range", "0:1"], "exactly one of"),
        (["--sample", "1"], "exactly one of"),
        (["--sample", "0"], "--sample"),
        (["--seed", "x"], "--seed"),
        (["--seed", "1"], "belong together"),
        (["--tasks-root", "nowhere"], "nowhere"),
        (["--reps", "0"], "--reps"),
        (["--reps", "1.5"], "--reps"),
        (["--workers", "0"], "--workers"),
        (["--workers", "9999999"], "The largest that fits is --workers"),
        (["--order", "random"], "--order"),
        (["--order-seed", "x"], "--order-seed"),
        (["--environment", "podman"], "--environment"),
        (["--memory-mb", "1"], "--memory-mb"),
        (["--cpus", "0"], "--cpus"),
        (["--cpus", "nan"], "--cpus"),
        (["--cpus", "100000"], "cores"),
        (["--pids", "4194305"], "--pids 4194305"),
        (["--agent-timeout", "604801"], "7 days"),
        (["--pids", "0"], "--pids"),
        (["--agent-timeout", "0"], "--agent-timeout"),
        (["--agent-timeout", "inf"], "--agent-timeout"),
        (["--verifier-network", "some"], "--verifier-network"),
        (["--preflight", "maybe"], "--preflight"),
        (["--existing", "overwrite"], "--existing"),
        (["--cell-retries", "-1"], "--cell-retries"),
        (["--host-reserve-gb", "-1"], "--host-reserve-gb"),
        (["--host-reserve-gb", "nan"], "--host-reserve-gb"),
        (["--host-reserve-gb", "999999"], "Not even one fits"),
        (["--capture-bodies", "last"], "--capture-bodies 'last'"),
        (["--allow-unproven-thinking", "advisor"], "no such role here"),
        (["--credential-path", "x"], "expected ROUTE=gateway"),
        (["--credential-path", "nosuch=gateway"], "no route 'nosuch' in this plan; it has: replay"),
        (["--receipt-out", "rcp.md"], "--receipt-out rcp.md: expected a .txt file or a directory"),
        (["--plan-out", "p.yaml"], "--plan-out p.yaml: expected a .json file or a directory"),
        (["--receipt-out", "/proc/nowhere"], "Choose another --receipt-out"),
        (["--reps", "2", "--reps", "3"], "--reps is given 2 times"),
        (["--workers", "1", "--workers=1"], "--workers is given 2 times"),
        (["--run-id", "../x"], "--run-id '../x'"),
        (["--run-id", "a/b"], "--run-id 'a/b'"),
        (["--progress-interval", "0"], "--progress-interval"),
        (
            ["--plan-out", "/proc/nowhere"],
            "the receipt cannot be written: No such file or directory. Choose another --plan-out",
        ),
        (["--format", "xml"], "--format"),
        (["--modle", "x"], "No such option"),
        (["stray"], "unexpected extra argument"),
    ],
)
def test_a_bad_value_of_any_flag_is_one_clear_refusal(
    arguments: list[str], says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(*good_with(*arguments)) == 1

    told = capsys.readouterr()
    assert says in told.err
    assert "Traceback" not in told.err
    assert not (here / "plans").exists()


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["--max-cost", "5"], "--max-cost"),
        (["--cell-max-cost", "5"], "--cell-max-cost"),
        (["--no-auto-resume"], "--no-auto-resume"),
        (["--max-quota-wait", "1"], "--max-quota-wait"),
        (["--quota-poll", "1"], "--quota-poll"),
        (["--watchdog", "auto"], "--watchdog"),
        (["--credential-path", "replay=container"], "--credential-path container"),
        (["--pass-openai-codex-oauth"], "--pass-openai-codex-oauth"),
        (["--idle-timeout", "60"], "--idle-timeout"),
        (["--price-file", "p"], "--price-file"),
        (["--probe-credentials"], "--probe-credentials"),
    ],
)
def test_a_flag_whose_part_is_missing_is_refused_by_name(
    arguments: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(*GOOD, *arguments) == 1

    assert f"{flag} is not built yet" in capsys.readouterr().err


def test_a_route_of_the_plan_may_be_named_and_options_of_many_values_repeated(here: Path) -> None:
    many = ["--allow-unproven-thinking", "executor", "--allow-unproven-thinking", "executor"]

    assert plan(*GOOD, "--credential-path", "replay=gateway", "--credential-path", "replay=gateway", *many) == 0


def test_consent_to_openrouter_is_recorded_and_told_even_when_nothing_goes_there(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(*GOOD) == 0
    without = read_plan(here / "plans/r1.json")
    assert plan(*good_with("--run-id", "r2"), "--allow-openrouter") == 0

    stored = read_plan(here / "plans/r2.json")
    assert (without.settings.allow_openrouter, stored.settings.allow_openrouter) == (False, True)
    assert stored.planIdentity != without.planIdentity
    assert [c.identity for c in stored.cells] == [c.identity for c in without.cells]
    assert "--allow-openrouter: consent to OpenRouter" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--agent", "loop"], "--subject / --agent is given 2 times"),
        (["--reps", "2", "--runs", "3"], "--reps / --runs is given 2 times"),
        (["--configs", "b"], "--configs is given 2 times"),
    ],
)
def test_one_option_under_two_names_is_given_twice(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends([*GOOD, *arguments], run_batch_command) == 1

    assert says in capsys.readouterr().err


def test_folders_without_a_task_toml_are_told_in_one_warning(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_files(here / "tasks", {"notes/x": "", "old/y": "", ".git/tests/z": "", "__pycache__/a": ""})

    assert plan(*GOOD) == 0

    assert "tasks root: 2 folders without task.toml, not tasks: notes, old" in capsys.readouterr().out
    assert len([w for w in read_plan(here / "plans/r1.json").warnings if "without task.toml" in w]) == 1


def test_a_missing_selection_and_missing_configs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("--subject", "nop", "--configs", "a", "--environment", "plain") == 1
    assert "exactly one of --tasks, --subset, --range, --all-tasks, --sample" in capsys.readouterr().err
    assert plan("--subject", "nop", "--all-tasks") == 1
    assert "--configs" in capsys.readouterr().err


def test_subsets_lie_in_the_workspace(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_files(here, {"subsets/small.txt": "t2  # only\n", "subsets/empty.txt": "# none\n"})
    base = [argument for argument in GOOD if argument != "--all-tasks"]

    assert plan(*base, "--subset", "small") == 0
    assert read_plan(here / "plans/r1.json").selection.tasks == ("t2",)
    assert plan(*base, "--subset", "missing") == 1
    assert plan(*base, "--subset", "../x") == 1
    assert plan(*base, "--subset", "empty") == 1
    assert "no tasks matched" in capsys.readouterr().err


def test_another_plan_of_the_same_name_is_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(*GOOD) == 0
    before = (here / "plans/r1.json").read_bytes()

    assert plan(*GOOD, "--reps", "3") == 1

    assert "Choose another --run-id" in capsys.readouterr().err
    assert (here / "plans/r1.json").read_bytes() == before


def test_help_names_every_flag_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("--help") == 0

    shown = capsys.readouterr().out
    flags = """subject model thinking configs baseline-config config-root tasks subset range all-tasks sample seed
        tasks-root reps workers run-id progress-interval environment memory-mb cpus pids agent-timeout idle-timeout
        verifier-network results-root state-root plan-out receipt-out leaf probe-credentials preflight existing
        cell-retries max-cost cell-max-cost no-auto-resume max-quota-wait quota-poll watchdog host-reserve-gb
        credential-path pass-openai-codex-oauth allow-openrouter allow-unproven-thinking capture-bodies price-file
        order order-seed"""
    assert "heartbeats and progress lines" in " ".join(shown.split())
    assert [flag for flag in flags.split() if not re.search(rf"--{flag}\b", shown)] == []


def test_the_old_name_knows_its_old_flags_and_asks_without_a_terminal(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--agent",
        "loop",
        "--model",
        "replay/m-1",
        "--configs",
        "a,b",
        "--all-tasks",
        "--environment",
        "plain",
    ]

    assert ends([*arguments, "--runs", "2", "--run-id", "old", "--force"], run_batch_command) == 3

    told = capsys.readouterr()
    stored = read_plan(here / "plans/old.json")
    assert (stored.settings.reps, stored.settings.existing, stored.baseline) == (2, "quarantine", "a")
    assert stored.planIdentity in told.out
    assert told.err.endswith(f"windtunnel run {here}/plans/old.json --confirm {stored.planIdentity}\n")
    assert not (here / "results/_runs").exists()


def test_the_old_name_refuses_what_is_not_built(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends([*GOOD, "--detach"], run_batch_command) == 1
    assert "--detach is not built yet" in capsys.readouterr().err


def test_the_old_name_with_a_wrong_identity_starts_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends([*GOOD, "--confirm", "sha256:" + "0" * 64], run_batch_command) == 3
    assert "is not this plan's identity" in capsys.readouterr().err
    assert not (here / "results/_runs").exists()


def test_the_old_script_is_the_same_command(here: Path) -> None:
    script = Path(__file__).parents[2] / "harness/run_batch.py"

    done = subprocess.run(
        [sys.executable, script, *GOOD], capture_output=True, text=True, cwd=here, stdin=subprocess.DEVNULL
    )

    assert done.returncode == 3
    assert "LAUNCH RECEIPT  run r1" in done.stdout
    assert "--confirm sha256:" in done.stderr
    assert "Traceback" not in done.stderr
