"""The `pi` adapter, and the real Pi from npm: it edits files through the driver and asks for the level it was given."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contexts import a_context
from driving import Drive
from provider_stub import Provider, Reply, provider

from windtunnel.domain.role import Thinking
from windtunnel.domain.wire import Tokens
from windtunnel.errors import InputWrong
from windtunnel.subjects.bundle import Bundle, build_bundle, verify
from windtunnel.subjects.driver_spec import ExitRecord
from windtunnel.subjects.interface import LaunchContext
from windtunnel.subjects.pi import Pi

LEAF = "m1/high"


def models(url: str, **model: Any) -> str:
    facts = {"id": "m1", "reasoning": True, "contextWindow": 100_000, "maxTokens": 4096}
    acme = {"baseUrl": url, "api": "openai-completions", "apiKey": "$ACME_KEY", "models": [facts | model]}
    return json.dumps({"providers": {"acme": acme, "unused": acme}})


def a_pi_context(tmp_path: Path, url: str = "https://llm.example.com/v1", **fields: Any) -> LaunchContext:
    context = a_context(tmp_path, model="acme/m1", route="rt", leaf=LEAF, **fields)
    assert context.leaf is not None
    (context.leaf / "models.json").write_text(models(url))
    return context


def test_launch_isolates_pi_and_takes_the_configs_own(tmp_path: Path) -> None:
    context = a_pi_context(tmp_path, thinking=Thinking.XHIGH)
    assert context.leaf is not None
    (context.inputs / "pi-flags").write_text("# tools\n--tools\nread,bash\n")
    (context.leaf / "pi-flags").write_text("--exclude-tools\nedit\n")
    (context.inputs / "system_preamble.md").write_text("Be brief.\n")
    (context.inputs / "bin").mkdir()
    (context.inputs / "skills" / "s1").mkdir(parents=True)
    (context.inputs / "extensions").mkdir()
    (context.inputs / "extensions" / "x.ts").write_text("")

    launch = Pi().launch(context)

    cli = "/windtunnel/bundle/node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js"
    assert launch.argv == (
        *("/windtunnel/bundle/node", cli, "--mode", "rpc", "--session-dir", "/windtunnel/box/session"),
        *("--no-extensions", "--no-skills", "--no-prompt-templates", "--no-themes", "--no-mcp", "--no-context-files"),
        *("--no-approve", "--offline", "--model", "acme/m1", "--thinking", "xhigh"),
        *("--append-system-prompt", "/windtunnel/in/append-system.md", "--skill", "/windtunnel/in/skills"),
        *("-e", "/windtunnel/in/extensions/x.ts", "--tools", "read,bash", "--exclude-tools", "edit"),
    )
    assert (launch.protocol, launch.prompt) == ("pi-rpc", "the task")
    assert (launch.render, launch.writable) == (("agent",), "/tmp/windtunnel")
    assert launch.env == {
        "PI_OFFLINE": "1",
        "PI_TELEMETRY": "0",
        "PI_SKIP_VERSION_CHECK": "1",
        "PI_CODING_AGENT_DIR": "/tmp/windtunnel/agent",
        "PATH": "/windtunnel/in/bin:{{windtunnel.path}}",
    }
    assert sorted(path.name for path in (context.stage / "agent").iterdir()) == ["models.json", "settings.json"]
    assert "ACME_KEY" not in (context.stage / "agent" / "models.json").read_text()
    assert (context.stage / "append-system.md").read_text() == "Be brief."


def test_without_a_root_of_its_own_the_agent_directory_lies_beside_the_inputs(tmp_path: Path) -> None:
    context = a_pi_context(tmp_path, inputs_in=str(tmp_path / "stage"))

    assert Pi().launch(context).writable == f"{tmp_path}/stage.writable"


def test_the_receipt_is_told_every_changed_field(tmp_path: Path) -> None:
    context = a_pi_context(tmp_path, "https://llm.chutes.ai/v1")

    told = Pi().overlay_description(context.inputs, context.leaf, model="acme/m1", route="rt")

    place = "models.json providers.acme"
    url = "https://llm.chutes.ai/v1"
    assert told == [
        f"{place}.baseUrl: {{{{windtunnel.base_url}}}}/r/rt/executor",
        f"{place}.apiKey: this attempt's token",
        f"{place}.models.m1.compat.supportsStore: false (implied by {url})",
        f'{place}.models.m1.compat.maxTokensField: "max_tokens" (implied by {url})',
        "models.json providers.unused: left out, no role uses it",
        'settings.json transport: "sse"',
        'settings.json cacheWarming: "off"',
        "settings.json enableInstallTelemetry: false",
    ]


@pytest.mark.parametrize(
    "flag",
    [
        *("-p", "--print", "--mode", "--model", "--model=x/y", "--thinking", "--thinking=low", "--session-dir"),
        *("--append-system-prompt", "--offline"),
    ],
)
@pytest.mark.parametrize("where", ["", LEAF])
def test_flags_that_the_harness_sets_are_refused(tmp_path: Path, flag: str, where: str) -> None:
    (tmp_path / LEAF).mkdir(parents=True)
    (tmp_path / where / "pi-flags").write_text(f"--verbose\n  {flag}\n")

    (why,) = Pi().refuse(tmp_path, tmp_path / LEAF)

    assert flag.partition("=")[0] in why and "set by the harness" in why
    assert why.startswith(f"{where}/pi-flags" if where else "pi-flags")


@pytest.mark.parametrize("flag", ["--continue", "--no-session", "-e", "--approve", "--"])
def test_flags_that_would_undo_the_isolation_are_refused(tmp_path: Path, flag: str) -> None:
    (tmp_path / "pi-flags").write_text(f"{flag}\n")

    assert Pi().refuse(tmp_path, None) == [f"pi-flags: {flag} cannot be used in a measurement"]


def test_a_comment_is_no_flag(tmp_path: Path) -> None:
    (tmp_path / "pi-flags").write_text("# --model would be set here\n\n--tools\nread\n")

    assert Pi().refuse(tmp_path, None) == []


def test_broken_files_and_loaded_extensions_are_refused_together(tmp_path: Path) -> None:
    (tmp_path / "models.json").write_text("{")
    (tmp_path / "settings.json").write_text('{"packages": ["npm:x"]}')

    first, second = Pi().refuse(tmp_path, None)

    assert "models.json: not a JSON object" in first
    assert second == "settings.json: packages loads extensions that no role covers"


def test_pi_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputWrong, match="--model"):
        Pi().launch(a_context(tmp_path))


# ---- the real Pi -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    """Pi 1.6.0, built by npm from the committed lock."""
    root = tmp_path_factory.mktemp("bundles")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINDTUNNEL_BUNDLES", str(root))
        yield build_bundle("pi", "1.6.0")
    subprocess.run(["chmod", "-R", "u+w", str(root)], check=True)
    shutil.rmtree(root)


def drive_pi(drive: Drive, bundle: Bundle, context: LaunchContext, served: Provider, socket: Path) -> ExitRecord:
    """What the supervisor does, on this machine: paths are real ones instead of the contract's."""
    launch = Pi().launch(context)
    real = {
        "/windtunnel/bundle": str(bundle.path),
        "/windtunnel/in": str(drive.inputs),
        "/windtunnel/box": str(drive.box),
    }

    def placed(text: str) -> str:
        for contract, here in real.items():
            text = text.replace(contract, here)
        return text

    shutil.copytree(context.stage, drive.inputs, dirs_exist_ok=True)
    (drive.inputs / "token").write_text("wt_token")
    writable = str(drive.root / "writable")
    env = {name: placed(value).replace("/tmp/windtunnel", writable) for name, value in launch.env.items()}
    return drive.run(
        *(placed(argument) for argument in launch.argv),
        protocol=launch.protocol,
        env=env,
        prompt=launch.prompt,
        socket=os.path.relpath(socket),
        token_file=str(drive.inputs / "token"),
        render=launch.render,
        writable=writable,
        deadline_after_ms=90_000,
        within_s=120.0,
    )


@pytest.mark.npm
def test_pi_edits_a_file_and_its_account_is_what_the_provider_said(
    drive: Drive, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # socket paths are limited to 108 bytes; the driver starts here too
    (tmp_path / "adapter").mkdir()
    context = a_pi_context(tmp_path / "adapter", thinking=Thinking.LOW)
    (context.inputs / "system_preamble.md").write_text("Preamble of the config.")
    (context.inputs / "orchestration.md").write_text("Orchestration of the config.")
    skill = context.inputs / "skills" / "counting"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: counting\ndescription: How to count to three.\n---\nOne, two, three.\n")
    (context.inputs / "bin").mkdir()
    (context.inputs / "bin" / "greet").write_text("#!/bin/sh\necho hello from bin\n")
    (context.inputs / "bin" / "greet").chmod(0o755)
    replies = [
        Reply(calls=(("write", {"path": "hello.txt", "content": "hello world\n"}),)),
        Reply(calls=(("edit", {"path": "hello.txt", "edits": [{"oldText": "world", "newText": "pi"}]}),)),
        Reply(calls=(("bash", {"command": "greet > greeting"}),)),
        Reply(text="Done."),
    ]

    with provider(replies, unix=tmp_path / "s") as served:
        record = drive_pi(drive, bundle, context, served, tmp_path / "s")

    assert (record.settled, record.exit, record.error, record.timed_out) == (True, 0, None, False)
    assert (drive.work / "hello.txt").read_text() == "hello pi\n"
    assert (drive.work / "greeting").read_text() == "hello from bin\n"
    assert {path for path, _, _ in served.requests} == {"/r/rt/executor/chat/completions"}
    assert {headers["authorization"] for _, headers, _ in served.requests} == {"Bearer wt_token"}
    assert [body["reasoning_effort"] for body in served.bodies] == ["low"] * 4
    assert {body["model"] for body in served.bodies} == {"m1"}
    system = json.dumps(served.bodies[0]["messages"][0])
    assert "Preamble of the config.\\n\\nOrchestration of the config." in system
    assert "How to count to three." in system
    assert "the task" in json.dumps(served.bodies[0]["messages"][1])

    account = Pi().account(drive.box)
    assert (account.turns, account.tool_calls, account.stop_reason, account.error) == (4, 3, "stop", None)
    assert account.tokens == Tokens(input=2400, cache_read=1600, cache_write=0, output=200, reasoning=80)
    assert len(account.session_files) == 1


@pytest.mark.npm
def test_pi_that_is_refused_by_its_provider_says_so_in_its_account(
    drive: Drive, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapter").mkdir()
    refusal = Reply(status=401, body={"error": {"message": "bad key"}})

    with provider([refusal], unix=tmp_path / "s") as served:
        record = drive_pi(drive, bundle, a_pi_context(tmp_path / "adapter"), served, tmp_path / "s")

    assert (record.settled, record.exit) == (True, 0)
    account = Pi().account(drive.box)
    assert account.stop_reason == "error"
    assert account.error is not None and "bad key" in account.error


@pytest.mark.npm
@pytest.mark.parametrize("host", ["llm.example.com", "api.z.ai", "api.deepseek.com", "openrouter.ai", "api.openai.com"])
def test_the_body_through_the_gateway_is_the_body_to_the_original_host(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Pi looks for host names anywhere in the URL, so a local address with the name in its path stands for the host."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapter").mkdir()
    (tmp_path / "direct").mkdir()
    with provider([Reply(text="ok")]) as original:
        direct = Drive(tmp_path / "direct")
        context = a_pi_context(tmp_path / "adapter", f"{original.base_url}/{host}/v1")
        (direct.inputs / "agent").mkdir()
        (direct.inputs / "agent" / "models.json").write_text(
            (context.inputs / LEAF / "models.json").read_text().replace("$ACME_KEY", "key")
        )
        (direct.inputs / "agent" / "settings.json").write_text('{"transport": "sse", "cacheWarming": "off"}')
        launch = Pi().launch(context)
        argv = [
            a.replace("/windtunnel/bundle", str(bundle.path)).replace("/windtunnel/box", str(direct.box))
            for a in launch.argv
        ]
        env = dict(launch.env) | {"PI_CODING_AGENT_DIR": str(direct.inputs / "agent")}
        record = direct.run(*argv, protocol="pi-rpc", env=env, prompt=launch.prompt, deadline_after_ms=60_000)
        assert record.settled

    (tmp_path / "through").mkdir()
    shutil.rmtree(tmp_path / "adapter")
    (tmp_path / "adapter").mkdir()
    through = Drive(tmp_path / "through")
    context = a_pi_context(tmp_path / "adapter", f"https://{host}/v1")
    with provider([Reply(text="ok")], unix=tmp_path / "s") as served:
        assert drive_pi(through, bundle, context, served, tmp_path / "s").settled

    assert len(original.bodies) == len(served.bodies) == 1
    assert comparable(served, through) == comparable(original, direct)


def comparable(served: Provider, drive: Drive) -> dict[str, Any]:
    """The body without what differs between any two runs: the working directory and the session's id."""
    body = json.loads(json.dumps(served.bodies[0]).replace(str(drive.work), "WORK"))
    if "prompt_cache_key" in body:
        body["prompt_cache_key"] = "SESSION"
    sent = {name: value for name, value in served.requests[0][1].items() if "session" in name or "affinity" in name}
    return dict(body, headers=sorted(sent))


@pytest.mark.npm
def test_the_pi_bundle_has_a_stable_hash(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDTUNNEL_BUNDLES", str(tmp_path / "again"))

    again = build_bundle("pi", "1.6.0")

    verify(bundle)
    assert again.hash == bundle.hash
    subprocess.run(["chmod", "-R", "u+w", str(again.path)], check=True)
    shutil.rmtree(again.path.parent)
