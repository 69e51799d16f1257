"""`windtunnel verify` and `windtunnel smoke check`: exit codes, lines and JSON as users see them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from run_trees import RunTree, a_tree
from windtunnel.cli.main import main

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def windtunnel(capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, out, err

    return call


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTree:
    tree = a_tree(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tree


def test_a_truthful_run_is_exit_0_and_its_files_are_shown_from_here(tree: RunTree, windtunnel: Command) -> None:
    code, out, _ = windtunnel("verify", "r1")

    *lines, last = out.splitlines()
    assert (code, last) == (0, "PASS")
    assert all(line.startswith("ok   ") for line in lines)
    assert "[results/_runs/r1/confirmation.json, results/_runs/r1/plan.json]" in out


def test_a_changed_byte_is_exit_2_and_names_the_file(tree: RunTree, windtunnel: Command) -> None:
    (tree.attempt("t1/a/rep1").verifier / "ctrf.json").write_text("{}")

    code, out, _ = windtunnel("verify", tree.run.root)

    assert code == 2
    assert "results/model-1/high/a/t1/rep1/attempts/1/verifier/ctrf.json" in out
    assert out.splitlines()[-1].startswith("FAIL (")


def test_json_holds_the_same_claims(tree: RunTree, windtunnel: Command) -> None:
    code, out, _ = windtunnel("verify", "r1", "--format", "json")

    report = json.loads(out)
    assert (code, report["passed"], report["summary"]) == (0, True, "PASS")
    assert all(claim["evidence"] for claim in report["claims"])


def test_a_running_run_passes_for_its_launch(tmp_path: Path, windtunnel: Command) -> None:
    a_tree(tmp_path, until="running")

    code, out, _ = windtunnel("verify", "r1", "--state-root", tmp_path / "results/_runs")

    assert (code, out.splitlines()[-1]) == (0, "PASS (launch; 3 of 4 cells so far)")


def test_an_unknown_run_is_one_line_and_exit_1(tree: RunTree, windtunnel: Command) -> None:
    code, out, err = windtunnel("verify", "r7")

    assert (code, out) == (1, "")
    assert "r7" in err and "r1" in err and len(err.splitlines()) == 1


def test_a_cell_keeps_the_contract_of_its_run(tree: RunTree, windtunnel: Command) -> None:
    code, out, _ = windtunnel("smoke", "check", "results/model-1/high/a/t1/rep0")

    assert code == 0
    assert "ok   requireFiles session/*.jsonl: 1 file(s): session/s.jsonl" in out
    assert out.splitlines()[-1] == "smoke contract kept (0 of 10 assertions failed)"


def test_another_contract_is_tried_without_writing_anything(tree: RunTree, tmp_path: Path, windtunnel: Command) -> None:
    (tmp_path / "smoke.json").write_text('{"requireFiles": ["session/*.xml"], "minResultValues": {"agent.exit": 0}}')
    before = tree.dir("t1/a/rep0").verdict.read_bytes()

    code, out, _ = windtunnel("smoke", "check", tree.dir("t1/a/rep0").root, "--contract", "smoke.json")

    assert code == 2
    assert "FAIL requireFiles session/*.xml: expected at least one file, found no file matches" in out
    assert "ok   minResultValues agent.exit: 0" in out
    assert tree.dir("t1/a/rep0").verdict.read_bytes() == before


def test_a_broken_contract_is_refused_by_name(tree: RunTree, tmp_path: Path, windtunnel: Command) -> None:
    (tmp_path / "smoke.json").write_text('{"requireFile": []}')

    code, _, err = windtunnel("smoke", "check", tree.dir("t1/a/rep0").root, "--contract", "smoke.json")

    assert code == 1
    assert "smoke.json" in err and "requireFile" in err


def test_a_directory_that_is_no_cell_is_refused(tree: RunTree, windtunnel: Command) -> None:
    code, _, err = windtunnel("smoke", "check", "results/model-1/high/a")

    assert code == 1
    assert "is not a cell" in err
