"""What the journeys share: a workspace on disk, whole commands as real processes, and their evidence read back."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

DONE: dict[str, Any] = {"text": "Done."}
MODEL = "replay/scripted"
LEVEL = "medium"
# What a task's image is built from, by environment: the disk environments only read the name.
BASES = {"docker": "windtunnel-base:bookworm"}
_COMMAND_S = 150.0
_POLL_S = 0.01

# Passes when answer.txt holds 42; written like any Harbor task, with the places that `plain` has to move.
TEST_SH = """#!/bin/sh
logs="${WINDTUNNEL_LOGS:-/logs}/verifier"
if [ "$(cat "${WINDTUNNEL_WORKDIR:-/app}/answer.txt" 2>/dev/null)" = 42 ]; then reward=1; else reward=0; fi
printf '{"reward": %s}\\n' "$reward" > "$logs/reward.json"
"""


# For the `command` subject: `call MODEL` makes one chat completion and prints the answer's text.
CALL = """#!/usr/bin/env python3
import json, os, sys, urllib.error, urllib.request
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
body = {"model": sys.argv[1], "messages": [{"role": "user", "content": "hello"}], "reasoning_effort": "medium"}
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
request = urllib.request.Request(url, json.dumps(body).encode(), headers)
try:
    answer = json.load(urllib.request.urlopen(request, timeout=20))
except urllib.error.HTTPError as error:
    sys.exit("HTTP %s: %s" % (error.code, error.read().decode()))
print(answer["choices"][0]["message"]["content"])
"""


def bash(command: str, **fields: Any) -> dict[str, Any]:
    """A scripted turn that runs a shell command."""
    return {"tool_calls": [{"name": "bash", "arguments": {"command": command}}]} | fields


def solves(**fields: Any) -> list[dict[str, Any]]:
    """Turns of a model that solves the tiny task; `fields` go into the first."""
    return [bash("echo 42 > answer.txt", **fields), DONE]


def script(turns: Sequence[Mapping[str, Any]], *more: Mapping[str, Any]) -> dict[str, Any]:
    """A replay script: `more` are whole conversations that are matched before the general one."""
    return {"schemaVersion": 1, "conversations": [*more, {"turns": list(turns)}]}


def on_task(task: str, turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A conversation for one task: its instruction names it."""
    return {"match": {"prompt_contains": [f"task {task}:"]}, "turns": list(turns)}


@dataclass
class Planned:
    """A written plan."""

    file: Path
    identity: str
    value: dict[str, Any]

    @property
    def run_dir(self) -> Path:
        return Path(self.value["paths"]["run_dir"])

    def result(self, cell: int = 0) -> Path:
        return Path(self.value["cells"][cell]["result_path"])

    @property
    def results(self) -> list[Path]:
        return [Path(cell["result_path"]) for cell in self.value["cells"]]


@dataclass
class Workspace:
    """A directory with configs and tasks. Its name is unique, so that what was started for it can be told apart."""

    root: Path
    environment: str
    tmp: Path
    started: list[Running] = field(default_factory=list)

    # ---- what lies in it ----

    def write(self, path: str, content: str | bytes | Mapping[str, Any], *, executable: bool = False) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Mapping):
            content = json.dumps(content)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        if executable:
            target.chmod(0o755)
        return target

    def config(
        self, name: str, replay: Mapping[str, Any] | None, files: Mapping[str, Any] | None = None, *, toml: str = ""
    ) -> Path:
        """A config whose provider `replay` follows the script; None: it calls no model."""
        route = '[routes.replay]\nkind = "replay"\nscript = "replay.json"\n'
        self.write(f"configs/{name}/config.toml", (route if replay is not None else "") + toml)
        if replay is not None:
            self.write(f"configs/{name}/replay.json", replay)
        for path, content in (files or {}).items():
            self.write(f"configs/{name}/{path}", content, executable=path.startswith("bin/"))
        return self.root / "configs" / name

    def task(self, name: str, *, timeout_s: float = 60.0, test_sh: str = TEST_SH, toml: str = "") -> Path:
        """A tiny task without build steps."""
        base = BASES.get(self.environment, "debian:bookworm")
        self.write(f"tasks/{name}/instruction.md", f"task {name}: write 42 into answer.txt\n")
        self.write(
            f"tasks/{name}/task.toml",
            'schema_version = "1.4"\n[metadata.windtunnel]\nlocal = true\n'
            '[environment]\nworkdir = "/app"\nmemory_mb = 256\nnetwork_mode = "no-network"\n'
            f'[agent]\ntimeout_sec = {timeout_s}\nnetwork_mode = "no-network"\n'
            f'[verifier]\ntimeout_sec = 60.0\nnetwork_mode = "no-network"\n{toml}',
        )
        self.write(f"tasks/{name}/environment/Dockerfile", f"FROM {base}\nWORKDIR /app\nCOPY app/ /app/\n")
        self.write(f"tasks/{name}/environment/app/notes.txt", "nothing here\n")
        self.write(f"tasks/{name}/tests/test.sh", test_sh, executable=True)
        return self.root / "tasks" / name

    def command(self, name: str, text: str, replay: Mapping[str, Any] | None = None) -> Path:
        """A config of subject `command`: a shell script that is given the box and the work directory."""
        files = {"command": "agent\n{box}\n{workdir}\n", "bin/agent": f"#!/bin/sh\nbox=$1 work=$2\n{text}\n"}
        return self.config(name, replay, {**files, "bin/call": CALL})

    # ---- commands ----

    def windtunnel(
        self,
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        prefix: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        """A command of the product, to its end. Output that is no UTF-8 fails here."""
        return subprocess.run(
            [*prefix, sys.executable, "-m", "windtunnel", *map(str, arguments)],
            cwd=cwd or self.root,
            env=self.env(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=_COMMAND_S,
        )

    def env(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.tmp), "PYTHONWARNINGS": "default", **(more or {})}

    def plan_command(self, *arguments: str, configs: str = "a", subject: str = "loop") -> list[str]:
        """The usual flags; a task selection among the arguments wins over all tasks."""
        chosen = {"--tasks", "--subset", "--range", "--sample", "--all-tasks"} & set(arguments)
        given = "--model" in arguments or subject == "command"  # which calls a model only when it is given one
        level = [] if "--thinking" in arguments else ["--thinking", LEVEL]
        model = [] if given else ["--model", MODEL, *level]
        environment = [] if "--environment" in arguments else ["--environment", self.environment]
        name = [] if "--run-id" in arguments else ["--run-id", "r1"]
        tasks = [] if chosen else ["--all-tasks"]
        return ["plan", "--subject", subject, "--configs", configs, *model, *environment, *name, *tasks, *arguments]

    def plan(self, *arguments: str, env: Mapping[str, str] | None = None, **settings: str) -> Planned:
        """Plan, and it must succeed."""
        command = self.plan_command(*arguments, **settings)
        done = self.windtunnel(*command, env=env)
        assert done.returncode == 0, done.stderr
        run_id = command[command.index("--run-id") + 1]
        file = self.root / "plans" / f"{run_id}.json"
        value = json.loads(file.read_text())
        return Planned(file, value["planIdentity"], value)

    def run_command(self, plan: Planned) -> list[str]:
        return ["run", str(plan.file), "--confirm", plan.identity]

    def run(self, plan: Planned, **settings: Any) -> subprocess.CompletedProcess[str]:
        return self.windtunnel(*self.run_command(plan), **settings)

    def start(self, plan: Planned, *, env: Mapping[str, str] | None = None) -> Running:
        """Give the run's command in the background."""
        running = Running.start(self, plan, env)
        self.started.append(running)
        return running

    def planned_and_run(self, *arguments: str, **settings: Any) -> tuple[Planned, subprocess.CompletedProcess[str]]:
        plan = self.plan(*arguments, **settings)
        return plan, self.run(plan)

    def verify(self, run_id: str = "r1", *more: str) -> subprocess.CompletedProcess[str]:
        return self.windtunnel("verify", run_id, *more)

    # ---- what must not be there ----

    def processes(self) -> list[str]:
        """Living processes that were started for this workspace: the kernel connects them with its unique name."""
        return [f"{pid} {command}" for pid, command in _processes_of(self.root.name)]

    def leftovers(self) -> list[str]:
        """Processes, claims, scratch and sockets of ended runs."""
        deadline = time.monotonic() + 5  # an orphaned provider looks for its supervisor twice a second
        while (found := self.processes()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        claims = [str(path) for path in self.root.glob("results/*/*/*/*/rep*/claim.json")]
        private = [str(path) for path in self.root.glob("results/_runs/*/private")]
        return [*found, *claims, *private, *map(str, self.tmp.glob("*/"))]


@dataclass
class Running:
    """A run in the background. It is waited for by its event log, never by the clock."""

    process: subprocess.Popen[str]
    run_dir: Path
    out: Path

    @classmethod
    def start(cls, workspace: Workspace, plan: Planned, env: Mapping[str, str] | None) -> Running:
        out = workspace.root / f"run-output-{len(workspace.started)}.txt"
        with out.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "windtunnel", *workspace.run_command(plan)],
                cwd=workspace.root,
                env=workspace.env(env),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        return cls(process, plan.run_dir, out)

    def wait_for(self, event: str, *, count: int = 1, **fields: Any) -> dict[str, Any]:
        """The count-th event of a kind with these fields, as soon as it is in the log."""

        def found() -> dict[str, Any] | None:
            hits = [e for e in events(self.run_dir) if e["event"] == event and fields.items() <= e.items()]
            return hits[count - 1] if len(hits) >= count else None

        hit = self.until(found, f"{count} x {event} {fields}")
        assert isinstance(hit, dict)
        return hit

    def until(self, found: Any, what: str) -> Any:
        """Poll until `found()` is true; fails when the run ends before."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            value = found()
            if value:
                return value
            assert not ended, f"the run ended before {what}:\n{self.out.read_text()}"
            time.sleep(_POLL_S)
        raise AssertionError(f"no {what} within 60 s:\n{self.out.read_text()}")

    def kill(self) -> None:
        """kill -9 of the supervisor alone."""
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end; the exit code."""
        return self.process.wait(timeout=120)

    def provider(self) -> psutil.Process:
        """The replay provider of the run, by its own state file."""
        state = self.run_dir / "private/replay-replay.json"
        pid = self.until(lambda: state.exists() and json.loads(state.read_text())["pid"], "the provider's state file")
        return psutil.Process(pid)

    def close(self) -> None:
        """End what a failed test left: the supervisor, then whatever was started for it."""
        if self.process.poll() is None:
            self.kill()


def _processes_of(name: str) -> Iterator[tuple[int, str]]:
    """(pid, command line) of every process that the kernel connects with a unique name: by its command line, its
    environment, its directory or a directory that is mounted for it."""
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        place = Path("/proc") / str(process.pid)
        try:
            command = (place / "cmdline").read_bytes()
            texts = [command, (place / "environ").read_bytes(), os.fsencode((place / "cwd").readlink())]
            texts.append((place / "mountinfo").read_bytes())
            zombie = process.status() == psutil.STATUS_ZOMBIE
        except (OSError, psutil.Error):
            continue
        if not zombie and any(name.encode() in text for text in texts):
            yield process.pid, command.replace(b"\0", b" ").decode("utf-8", "replace")


def end_processes_of(name: str) -> None:
    """Clean up behind a failed test: by pid and start time, which psutil compares before it signals."""
    for pid, _ in list(_processes_of(name)):
        try:
            process = psutil.Process(pid)
            process.kill()
        except psutil.Error:
            continue


def events(run_dir: Path) -> list[dict[str, Any]]:
    """The whole lines of an event log."""
    try:
        data = (run_dir / "events.ndjson").read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def of_kind(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in events(run_dir) if event["event"] == kind]


def ndjson(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def result(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text())
    assert isinstance(value, dict)
    return value


def outcome(path: Path) -> tuple[str, str]:
    found = result(path)["outcome"]
    return found["status"], found["reason"]


def attempts(result_path: Path) -> list[dict[str, Any]]:
    """attempt.json of every attempt of a cell, in order. A kill may leave a directory without one: nothing began."""
    found = sorted((result_path.parent / "attempts").glob("*/attempt.json"), key=lambda path: int(path.parent.name))
    return [json.loads(path.read_text()) for path in found]


def asked(run_dir: Path, route: str = "replay") -> list[dict[str, Any]]:
    """What the provider itself counted: its chat completions, in all starts of the run."""
    log = run_dir / f"evidence/replay-{route}.ndjson"
    return [line for line in ndjson(log) if line["path"].endswith("/chat/completions")] if log.exists() else []


def is_clear_refusal(done: subprocess.CompletedProcess[str], code: int) -> None:
    """One clear line of ours on stderr, the code, and no traceback anywhere."""
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr + done.stdout
    assert re.match(r"^(windtunnel: |Usage: )", done.stderr), done.stderr


def said_wrong(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The claims that do not hold and what was said on stderr."""
    return [line for line in done.stdout.splitlines() if line.startswith("FAIL")] + done.stderr.splitlines()


def has_passed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, said_wrong(done)
    assert done.stdout.rstrip().splitlines()[-1].startswith("PASS")


def remove_tree(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
