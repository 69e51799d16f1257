"""The small subjects and the registry."""

from __future__ import annotations

from pathlib import Path

import pytest
from contexts import a_context

from windtunnel.domain.role import Thinking
from windtunnel.errors import InputWrong
from windtunnel.subjects.command import Command
from windtunnel.subjects.interface import Account, Launch
from windtunnel.subjects.nop import Nop
from windtunnel.subjects.oracle import Oracle
from windtunnel.subjects.registry import find, known, parse


def test_oracle_runs_the_solution_that_is_placed_for_it(tmp_path: Path) -> None:
    context = a_context(tmp_path, solution_env={"A": "1"})

    assert Oracle().launch(context) == Launch(
        protocol="exit",
        argv=("bash", "/solution/solve.sh"),
        env={"A": "1"},
        placed={tmp_path / "task" / "solution": "/solution"},
    )


def test_oracle_without_a_root_of_its_own_runs_the_solution_from_its_inputs(tmp_path: Path) -> None:
    context = a_context(tmp_path, inputs_in=str(tmp_path / "stage"))
    (tmp_path / "task" / "solution").mkdir()
    (tmp_path / "task" / "solution" / "solve.sh").write_text("true\n")

    launch = Oracle().launch(context)

    assert (launch.argv, launch.placed) == (("bash", f"{tmp_path}/stage/solution/solve.sh"), {})
    assert (tmp_path / "stage" / "solution" / "solve.sh").read_text() == "true\n"


def test_nop_starts_something_that_ends_at_once(tmp_path: Path) -> None:
    launch = Nop().launch(a_context(tmp_path))

    assert launch.argv == ("/windtunnel/bundle/node", "-e", "0")
    assert (launch.prompt, launch.placed) == (None, {})


def test_command_fills_in_its_placeholders(tmp_path: Path) -> None:
    context = a_context(tmp_path, model="acme/deep/m1", route="acme", thinking=Thinking.LOW)
    lines = "# my agent\n/bin/agent\n\n--model={model}\n{thinking}\n{prompt_file}\n{workdir}/{box}\nkeep {this}\n"
    (context.inputs / "command").write_text(lines)
    (context.inputs / "bin").mkdir()
    (context.inputs / "bin" / "agent").write_text("#!/bin/sh\n")
    (context.inputs / "bin" / "agent").chmod(0o755)

    launch = Command().launch(context)

    assert launch.argv == (
        "/bin/agent",
        "--model=deep/m1",
        "low",
        "/windtunnel/in/instruction.md",
        "/app//windtunnel/box",
        "keep {this}",
    )
    assert launch.prompt == (context.stage / "instruction.md").read_text() == "the task"
    assert launch.env == {
        "PATH": "/windtunnel/in/bin:{{windtunnel.path}}",
        "OPENAI_BASE_URL": "{{windtunnel.base_url}}/r/acme/executor",
        "OPENAI_API_KEY": "{{windtunnel.token}}",
    }
    assert (context.stage / "bin" / "agent").stat().st_mode & 0o111


def test_command_without_a_route_gets_no_address(tmp_path: Path) -> None:
    context = a_context(tmp_path)
    (context.inputs / "command").write_text("true\n{model}\n")

    launch = Command().launch(context)

    assert (launch.argv, launch.env) == (("true", "none"), {})
    assert not Command().calls_models


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no file 'command'"),
        (b"# nothing\n\n", "no argument"),
        (b"agent\n--url={base_url}\n", "OPENAI_BASE_URL"),
        (b"\xff\n", "not UTF-8"),
    ],
)
def test_command_refuses_a_config_it_cannot_run(tmp_path: Path, text: bytes | None, says: str) -> None:
    if text is not None:
        (tmp_path / "command").write_bytes(text)

    (why,) = Command().refuse(tmp_path, None)

    assert says in why
    with pytest.raises(InputWrong):
        context = a_context(tmp_path)
        if text is not None:
            (context.inputs / "command").write_bytes(text)
        Command().launch(context)


@pytest.mark.parametrize("name", ["oracle", "nop", "command"])
def test_subjects_without_a_model_keep_no_account(tmp_path: Path, name: str) -> None:
    subject = find(name)

    assert subject.account(tmp_path) == Account()
    assert not subject.calls_models


def test_registry_knows_the_built_in_subjects() -> None:
    assert {"command", "loop", "nop", "oracle", "pi"} <= set(known())
    assert [find(name).name for name in known()] == known()
    assert find("pi").version == find("pi", "1.6.0").version == "1.6.0"


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [
        ("py", None, "Known: command, loop, nop, oracle, pi"),
        ("pi", "0.1", "Locked: 1.6.0"),
        ("nop", "2", "There is nop@1"),
    ],
)
def test_an_unknown_subject_or_version_lists_those_there_are(name: str, version: str | None, says: str) -> None:
    with pytest.raises(InputWrong, match=says):
        find(name, version)


def test_subject_texts_are_parsed() -> None:
    assert parse("pi@1.6.0") == ("pi", "1.6.0")
    assert parse("pi") == ("pi", None)


@pytest.mark.parametrize("text", ["", "@1", "pi@", "pi@1@2", "a b", "../pi"])
def test_what_is_no_subject_text_is_refused(text: str) -> None:
    with pytest.raises(InputWrong, match="NAME@VERSION"):
        parse(text)
