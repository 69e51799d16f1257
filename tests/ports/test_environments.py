"""One suite for the port of environments; docker, local and plain must all pass it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from windtunnel.domain.task import ImageSource, Limits
from windtunnel.environments import intake
from windtunnel.environments.choose import clear, make
from windtunnel.environments.interface import BOX, INPUTS, Environment, Image, Mount, Sandbox, SandboxSpec
from windtunnel.errors import AttemptFault

ADAPTERS = [
    pytest.param("docker", marks=pytest.mark.engine),
    pytest.param("local", marks=pytest.mark.sandbox),
    pytest.param("plain"),
]
ISOLATED = ADAPTERS[:2]
every_adapter = pytest.mark.parametrize("adapter", ADAPTERS)
Opener = Callable[..., Awaitable[Sandbox]]
CANARY = "canary-7c1f0a55"


@pytest.fixture(scope="session")
def task_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A task whose image every adapter can make; its own content in each worker, so that each can clean up after it."""
    root = tmp_path_factory.mktemp("task")
    context = root / "environment"
    (context / "stale").mkdir(parents=True)
    (context / "start.txt").write_text(f"{uuid.uuid4().hex}\n")
    (context / "stale" / "old.txt").write_text("1\n")
    (context / "Dockerfile").write_text(
        "FROM windtunnel-base:bookworm\nWORKDIR /app\nENV GREETING=hello\n"
        "COPY start.txt /app/start.txt\nCOPY stale/ /logs/verifier/\n"
    )
    yield root
    for made in IMAGES:
        subprocess.run(["docker", "rmi", "-f", made], capture_output=True)


IMAGES: set[str] = set()  # tags this worker made; never by a search, others work on the same engine


@pytest.fixture
async def environment(adapter: str, tmp_path: Path) -> AsyncIterator[Environment]:
    made = make(adapter, work_root=tmp_path / "work")
    try:
        await made.facts()
        yield made
    finally:
        await made.close()


@pytest.fixture
async def image(environment: Environment, task_dir: Path) -> Image:
    source = ImageSource(context="environment", base="windtunnel-base:bookworm")
    made = await environment.image(source, task_dir=task_dir, build_timeout_s=120)
    if environment.name == "docker":
        IMAGES.add(made.reference)
    return made


@pytest.fixture
def labels() -> dict[str, str]:
    return {"windtunnel.run": f"test-{uuid.uuid4().hex}", "windtunnel.role": "subject"}


@pytest.fixture
async def opened(
    environment: Environment, image: Image, labels: dict[str, str], tmp_path: Path
) -> AsyncIterator[Opener]:
    """Open sandboxes; all of them are gone after the test, whatever it did."""

    async def open_one(**changes: Any) -> Sandbox:
        name = f"dsw-test-{uuid.uuid4().hex[:12]}"
        scratch = tmp_path / "scratch" / name
        scratch.mkdir(parents=True)
        fields: dict[str, Any] = {
            "name": name,
            "labels": labels,
            "image": image,
            "network": "none",
            "limits": Limits(memory_mb=512, cpus=1.0, pids=200),
            "scratch": scratch,
        }
        return await environment.open(SandboxSpec(**(fields | changes)))

    yield open_one
    await environment.sweep({"windtunnel.run": labels["windtunnel.run"]})
    assert await environment.left({"windtunnel.run": labels["windtunnel.run"]}) == []


async def sh(sandbox: Sandbox, script: str, **options: Any) -> str:
    done = await sandbox.exec(["/bin/sh", "-c", script], **options)
    assert done.exit == 0, (done.exit, done.stderr, done.stdout)
    return done.stdout.decode()


async def launch(sandbox: Sandbox, script: str, *arguments: str, **env: str) -> None:
    """Output goes nowhere, as the driver's does; the engine is slow while something holds an exec's own output open."""
    silent = f"exec >/dev/null 2>&1; {script}"
    await sandbox.launch(["/bin/sh", "-c", silent, "sh", *arguments], env=env, cwd=None, user=None)


async def until(condition: Callable[[], Awaitable[bool]], *, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)


def exists(sandbox: Sandbox, path: str) -> Callable[[], Awaitable[bool]]:
    async def asked() -> bool:
        return (await sandbox.exec(["test", "-e", sandbox.inside(path)])).exit == 0

    return asked


# --- exec


@every_adapter
async def test_exec_gives_exit_code_and_both_streams(opened: Opener) -> None:
    sandbox = await opened()

    done = await sandbox.exec(["/bin/sh", "-c", "echo out; echo err >&2; exit 7"])

    assert (done.exit, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    assert not done.timed_out and not done.truncated


@every_adapter
async def test_exec_of_a_missing_program_fails_and_says_so(opened: Opener) -> None:
    sandbox = await opened()

    done = await sandbox.exec(["/no/such/program"])

    assert done.exit not in (0, None)
    assert b"/no/such/program" in done.stderr + done.stdout


@every_adapter
async def test_exec_starts_in_the_work_directory_with_the_images_and_the_contracts_environment(opened: Opener) -> None:
    sandbox = await opened(env={"FROM_SPEC": "spec"})

    said = await sh(
        sandbox,
        'pwd; echo "$GREETING $FROM_SPEC $FROM_CALL"; echo "$WINDTUNNEL_WORKDIR:$WINDTUNNEL_LOGS:$WINDTUNNEL_TESTS"',
        env={"FROM_CALL": "call"},
    )

    paths = ":".join(sandbox.inside(path) for path in ("/app", "/logs", "/tests"))
    assert said.splitlines() == [sandbox.inside("/app"), "hello spec call", paths]


@every_adapter
async def test_exec_output_is_cut_at_the_limit_and_the_command_still_ends(opened: Opener) -> None:
    sandbox = await opened()

    done = await sandbox.exec(["/bin/sh", "-c", "head -c 5000000 /dev/zero; exit 3"], output_limit=1000)

    assert (done.exit, len(done.stdout), done.truncated) == (3, 1000, True)


@every_adapter
async def test_exec_timeout_ends_the_command_and_its_grandchildren(opened: Opener) -> None:
    sandbox = await opened()
    late = "(sleep 2; touch late1) & setsid sh -c 'sleep 2; touch late2' & sleep 60"

    began = time.monotonic()
    done = await sandbox.exec(["/bin/sh", "-c", f"echo begun; {late}"], timeout_s=1.0)

    assert (done.exit, done.timed_out, done.stdout) == (None, True, b"begun\n")
    assert time.monotonic() - began < 15
    await asyncio.sleep(2.2)
    assert "late" not in await sh(sandbox, "ls")


# --- put and fetch


@every_adapter
async def test_put_and_fetch_carry_bytes_and_the_executable_bit(opened: Opener, tmp_path: Path) -> None:
    sandbox = await opened()
    source = tmp_path / "source"
    (source / "deep" / "empty").mkdir(parents=True)
    binary = bytes(range(256)) * 4096
    (source / "deep" / "data.bin").write_bytes(binary)
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o700)

    await sandbox.put(source, "/solution/copy")
    assert await sh(sandbox, sandbox.inside("/solution/copy") + "/run.sh") == "ran\n"
    fetched = await sandbox.fetch("/solution/copy", tmp_path / "back", limit_bytes=10_000_000)

    assert (fetched.found, fetched.files, fetched.skipped) == (True, 2, ())
    assert fetched.bytes == len(binary) + 19
    assert (tmp_path / "back" / "deep" / "data.bin").read_bytes() == binary
    assert (tmp_path / "back" / "deep" / "empty").is_dir()
    assert (tmp_path / "back" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "back" / "run.sh").stat().st_uid == os.geteuid()


@every_adapter
async def test_a_single_file_goes_in_and_out_under_exactly_the_names_given(opened: Opener, tmp_path: Path) -> None:
    sandbox = await opened()
    (tmp_path / "a").write_text("one")

    await sandbox.put(tmp_path / "a", "/app/new/name.txt")
    await sandbox.put(tmp_path / "a", "/app/start.txt")
    fetched = await sandbox.fetch("/app/new/name.txt", tmp_path / "out" / "b", limit_bytes=100)

    assert (fetched.found, fetched.files, fetched.bytes) == (True, 1, 3)
    assert (tmp_path / "out" / "b").read_text() == "one"
    assert await sh(sandbox, "cat start.txt") == "one"


@every_adapter
async def test_fetch_of_a_missing_path_finds_nothing(opened: Opener, tmp_path: Path) -> None:
    sandbox = await opened()

    fetched = await sandbox.fetch("/app/none/at/all", tmp_path / "out", limit_bytes=100)

    assert (fetched.found, fetched.files) == (False, 0)
    assert not (tmp_path / "out").exists()


@every_adapter
async def test_fetch_leaves_links_pipes_and_what_is_over_the_limit_behind(opened: Opener, tmp_path: Path) -> None:
    sandbox = await opened()
    deep = "d" * 100
    await sh(
        sandbox,
        f"""mkdir -p t/{deep}/{deep}/{deep} && cd t
        echo kept > {deep}/{deep}/{deep}/file
        ln -s /etc/passwd passwd; ln -s /etc etc; ln -s .. up; mkfifo pipe
        printf 'x' > "$(printf 'bad\\377name')"; printf 'x' > "$(printf 'esc\\033[2Jname')"
        echo first > first; ln first second
        truncate -s 50M huge""",
    )

    fetched = await sandbox.fetch("/app/t", tmp_path / "out", limit_bytes=100_000)

    out = tmp_path / "out"
    assert fetched.found
    assert (out / deep / deep / deep / "file").read_text() == "kept\n"
    assert (out / "first").read_text() == (out / "second").read_text() == "first\n"
    assert (out / "bad\udcffname").exists()
    assert not [path for path in out.rglob("*") if path.is_symlink() or not (path.is_file() or path.is_dir())]
    for name in ("passwd", "etc", "up", "pipe", "huge"):
        assert not os.path.lexists(out / name)
        assert any(name in line for line in fetched.skipped), (name, fetched.skipped)
    assert all(line.isprintable() for line in fetched.skipped)


@every_adapter
async def test_fetch_never_goes_through_a_link_that_the_agent_planted(opened: Opener, tmp_path: Path) -> None:
    sandbox = await opened()
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text(CANARY)
    await sh(sandbox, f"ln -s {secret} direct; mkdir real; ln -s {secret}/key real/key")

    results = [
        await sandbox.fetch(path, tmp_path / f"o{n}", limit_bytes=1000)
        for n, path in enumerate(("/app/direct", "/app/direct/key", "/app/real", "/app/real/key"))
    ]

    assert sum(result.files for result in results) == 0
    assert not [path for path in tmp_path.glob("o*/**/*") if path.is_file() and CANARY in path.read_text()]


@every_adapter
async def test_put_is_not_led_out_by_a_link_that_the_agent_planted(opened: Opener, tmp_path: Path) -> None:
    sandbox = await opened()
    outside, source = tmp_path / "outside", tmp_path / "source"
    outside.mkdir()
    source.mkdir()
    (source / "test.sh").write_text("exit 0\n")
    await sh(sandbox, f"ln -s {outside} checks")

    await sandbox.put(source, "/app/checks")

    assert list(outside.iterdir()) == []


# --- launch and end


@every_adapter
async def test_launch_is_detached_and_its_exit_code_is_known(opened: Opener) -> None:
    sandbox = await opened()

    await launch(sandbox, 'while [ ! -e go ]; do sleep 0.05; done; echo "$COLOUR" > colour; exit 9', COLOUR="blue")
    assert await sandbox.launched_exit() is None
    await sh(sandbox, "touch go")

    async def ended() -> bool:
        return await sandbox.launched_exit() is not None

    await until(ended)
    assert await sandbox.launched_exit() == 9
    assert await sh(sandbox, "cat colour") == "blue\n"


@every_adapter
async def test_launched_processes_are_gone_after_the_end(opened: Opener) -> None:
    sandbox = await opened()
    await launch(sandbox, "touch begun; sleep 1000")
    await until(exists(sandbox, "/app/begun"))

    await sandbox.end_processes()
    await sandbox.end_processes()

    assert await sandbox.launched_exit() is not None


ESCAPES = {
    "a late writer": "(sleep 1.5; echo late > late) & touch begun",
    "a daemon of a session of its own": "setsid sh -c 'touch begun; sleep 1.5; echo late > late' & exit 0",
    "a double fork": "(setsid sh -c '(touch begun; sleep 1.5; echo late > late) & exit 0' &) ; exit 0",
    "one that ignores TERM": "trap '' TERM HUP INT; touch begun; sleep 1.5; echo late > late",
    "one with another environment": "env -i setsid sh -c 'touch begun; sleep 1.5; echo late > late' & exit 0",
    "a loop of forks": """python3 -c "
import os, time
open('begun', 'w').close()
end = time.time() + 30
for _ in range(40):
    if os.fork() == 0:
        while time.time() < end:
            try:
                if os.fork() == 0:
                    os.setsid()
                else:
                    os._exit(0)
            except OSError:
                pass
            time.sleep(0.01)
        os._exit(0)
time.sleep(1.5)
open('late', 'w').close()
" """,
}


@every_adapter
@pytest.mark.parametrize("script", ESCAPES.values(), ids=ESCAPES.keys())
async def test_nothing_survives_the_end(opened: Opener, script: str, tmp_path: Path) -> None:
    sandbox = await opened()
    await launch(sandbox, script)
    await until(exists(sandbox, "/app/begun"))

    await sandbox.end_processes()
    first = await sandbox.fetch("/app", tmp_path / "first", limit_bytes=1_000_000)
    await asyncio.sleep(1.7)
    await sandbox.fetch("/app", tmp_path / "then", limit_bytes=1_000_000)

    assert first.found and (tmp_path / "first" / "begun").exists()
    assert not (tmp_path / "then" / "late").exists()


@every_adapter
async def test_no_environment_value_is_on_any_command_line(opened: Opener) -> None:
    sandbox = await opened(env={"SPEC_KEY": CANARY})
    await launch(sandbox, "touch begun; sleep 30", KEY=CANARY)
    await until(exists(sandbox, "/app/begun"))

    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    exec_ = asyncio.create_task(sandbox.exec(["sleep", "2"], env={"KEY": CANARY}))
    for _ in range(20):
        await asyncio.sleep(0.05)
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                lines.append(path.read_bytes())
            except OSError:
                continue
    await exec_

    assert not [line for line in lines if CANARY.encode() in line]


@every_adapter
async def test_everything_but_an_exec_works_after_the_end(
    opened: Opener, environment: Environment, labels: dict[str, str], tmp_path: Path
) -> None:
    sandbox = await opened(fresh=("/logs/verifier",))
    await sh(sandbox, f"echo work > work; echo 1 > {sandbox.inside('/logs/verifier')}/reward.txt")

    await sandbox.end_processes()

    reward = await sandbox.fetch("/logs/verifier", tmp_path / "logs", limit_bytes=1000)
    await sandbox.fetch("/app/work", tmp_path / "fetched", limit_bytes=1000)
    snapshot = await sandbox.snapshot("frozen", labels)
    again = await opened(image=snapshot)
    assert (tmp_path / "logs" / "reward.txt").read_text() == "1\n" and reward.files == 1
    assert (tmp_path / "fetched").read_text() == await sh(again, "cat work") == "work\n"
    await sandbox.observed()
    await sandbox.remove()
    assert await environment.left(labels) != []


@every_adapter
async def test_fetch_stops_at_too_many_entries_and_says_so(
    opened: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "ENTRY_LIMIT", 1200)
    sandbox = await opened()
    links = "for n in range(1100): os.symlink('x', f'many/a{n}')"
    files = "for n in range(300): open(f'many/b{n}', 'w')"
    make_many = f"import os\n{links}\n{files}"
    await sh(sandbox, f'mkdir many; python3 -c "{make_many}"')

    fetched = await sandbox.fetch("/app/many", tmp_path / "out", limit_bytes=1_000_000)

    assert fetched.found and fetched.files <= 300
    assert len(list((tmp_path / "out").iterdir())) == fetched.files
    assert any(": over the limit" in line for line in fetched.skipped), "also when the list of the others is full"


@every_adapter
async def test_fetch_takes_200_levels_and_names_what_is_deeper(opened: Opener, tmp_path: Path) -> None:
    sandbox = await opened()
    dig = "import os\nfor n in range(1500):\n  open('f', 'w')\n  os.mkdir('d'); os.chdir('d')"
    await sh(sandbox, f'mkdir top; cd top; python3 -c "{dig}"')

    fetched = await sandbox.fetch("/app/top", tmp_path / "out", limit_bytes=1_000_000)

    assert fetched.files == 200
    assert (tmp_path / "out").joinpath(*["d"] * 199, "f").is_file()
    assert any("too deep" in line for line in fetched.skipped)


# --- fresh, mounts, network


@every_adapter
async def test_fresh_directories_start_empty_and_do_not_enter_the_snapshot(
    opened: Opener, environment: Environment, labels: dict[str, str], tmp_path: Path
) -> None:
    sandbox = await opened(fresh=("/logs/verifier",))
    logs = sandbox.inside("/logs/verifier")
    assert await sh(sandbox, f"ls -A {logs}") == ""
    await sh(sandbox, f"echo 1 > {logs}/reward.txt; echo changed > made.txt")
    out = await sandbox.fetch("/logs/verifier", tmp_path / "out", limit_bytes=1000)
    assert out.files == 1

    snapshot = await sandbox.snapshot("frozen", labels)
    again = await opened(image=snapshot)

    assert await sh(again, "cat made.txt") == "changed\n"
    assert "reward" not in await sh(again, f"ls -A {again.inside('/logs/verifier')}")
    assert snapshot.workdir == "/app"
    await again.remove()
    await sandbox.remove()
    await environment.remove_image(snapshot)
    await environment.remove_image(snapshot)


@every_adapter
async def test_fresh_is_a_directory_whatever_the_agent_left_there(
    opened: Opener, environment: Environment, labels: dict[str, str], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    sandbox = await opened()
    tests = sandbox.inside("/tests")
    await sh(sandbox, f"rm -rf {tests}/* ; mkdir -p {tests}; echo planted > {tests}/conftest.py")
    snapshot = await sandbox.snapshot("frozen", labels)

    again = await opened(image=snapshot, fresh=("/tests",))

    assert await sh(again, f"ls -A {again.inside('/tests')}") == ""
    assert (outside / "kept").exists()


@every_adapter
async def test_the_box_is_written_inside_and_read_on_the_host(opened: Opener, tmp_path: Path) -> None:
    box, inputs = tmp_path / "box", tmp_path / "in"
    box.mkdir()
    inputs.mkdir()
    (inputs / "spec.json").write_text("{}")
    sandbox = await opened(mounts=[Mount(box, BOX, read_only=False), Mount(inputs, INPUTS, read_only=True)])
    (box / "events").touch()

    await launch(
        sandbox,
        'cat "$2/spec.json" > "$1/copy"; echo event >> "$1/events"; mkdir "$1/sessions"; touch "$1/done"',
        sandbox.inside(BOX),
        sandbox.inside(INPUTS),
    )

    async def done() -> bool:
        return (box / "done").exists()

    await until(done)
    fetched = await sandbox.fetch(BOX, tmp_path / "fetched", limit_bytes=1000)
    await sandbox.end_processes()
    await sandbox.reclaim(BOX)
    assert (box / "copy").read_text() == "{}"
    assert (box / "events").read_text() == "event\n"
    ended = await sandbox.fetch(BOX, tmp_path / "ended", limit_bytes=1000)
    assert fetched.files == ended.files == 3
    assert {path.stat().st_uid for path in (box, *box.iterdir())} == {os.geteuid()}


@pytest.mark.parametrize("adapter", ISOLATED)
async def test_read_only_mounts_cannot_be_written_and_mounts_stay_out_of_the_snapshot(
    opened: Opener, labels: dict[str, str], tmp_path: Path
) -> None:
    box, inputs = tmp_path / "box", tmp_path / "in"
    box.mkdir()
    inputs.mkdir()
    (box / "claim").touch()
    sandbox = await opened(mounts=[Mount(box, BOX, read_only=False), Mount(inputs, INPUTS, read_only=True)])

    done = await sandbox.exec(["touch", f"{INPUTS}/new"])
    again = await opened(image=await sandbox.snapshot("frozen", labels))

    assert done.exit != 0 and b"Read-only" in done.stderr
    assert (await again.exec(["test", "-e", f"{BOX}/claim"])).exit == 1


@pytest.mark.parametrize("adapter", ISOLATED)
async def test_without_a_network_there_is_only_the_loopback(opened: Opener) -> None:
    sandbox = await opened(network="none")

    lines = (await sh(sandbox, "cat /proc/net/dev")).splitlines()[2:]

    assert [line.split(":")[0].strip() for line in lines] == ["lo"]


@pytest.mark.parametrize("adapter", ISOLATED)
async def test_the_hosts_files_and_processes_are_not_there(opened: Opener, tmp_path: Path) -> None:
    sandbox = await opened()
    (tmp_path / "hidden").write_text(CANARY)

    done = await sandbox.exec(["cat", str(tmp_path / "hidden")])
    seen = await sh(sandbox, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")

    assert done.exit != 0 and CANARY.encode() not in done.stdout
    assert "pytest" not in seen


# --- life


@every_adapter
async def test_two_sandboxes_do_not_see_each_others_work(opened: Opener) -> None:
    one, two = await asyncio.gather(opened(), opened())

    await sh(one, "echo one > mine")
    await one.end_processes()

    assert await sh(two, "ls") == "start.txt\n"


@every_adapter
async def test_remove_works_twice_and_leaves_nothing(
    opened: Opener, environment: Environment, labels: dict[str, str]
) -> None:
    sandbox = await opened()
    await launch(sandbox, "mkdir -p ro/deep; touch ro/deep/x; chmod -R 500 ro; touch begun; sleep 1000")
    await until(exists(sandbox, "/app/begun"))
    assert await environment.left(labels) == [sandbox.spec.name]

    await sandbox.remove()
    await sandbox.remove()

    assert await environment.left(labels) == []
    assert not sandbox.spec.scratch.exists()


@every_adapter
async def test_a_removed_sandbox_is_lost(opened: Opener) -> None:
    sandbox = await opened()
    await launch(sandbox, "sleep 1000")
    await sandbox.remove()

    with pytest.raises(AttemptFault) as caught:
        await sandbox.launched_exit()

    assert caught.value.reason == "container_lost"


@every_adapter
async def test_sweep_takes_only_what_carries_all_the_labels(
    opened: Opener, environment: Environment, labels: dict[str, str]
) -> None:
    one = await opened(labels=labels | {"windtunnel.cell": "a"})
    two = await opened(labels=labels | {"windtunnel.cell": "b"})
    await launch(one, "touch begun; sleep 1000")
    await until(exists(one, "/app/begun"))
    snapshot = await two.snapshot("frozen", labels | {"windtunnel.cell": "b"})

    removed = await environment.sweep(labels | {"windtunnel.cell": "a"})

    assert removed == [one.spec.name]
    assert len(await environment.left(labels)) == 2
    assert len(await environment.sweep(labels)) == 2
    assert snapshot.id


@every_adapter
async def test_a_sweep_without_labels_is_refused(environment: Environment) -> None:
    with pytest.raises(ValueError, match="without labels"):
        await environment.sweep({})


@every_adapter
async def test_what_a_killed_supervisor_left_runs_on_and_is_swept_by_the_next(
    adapter: str, environment: Environment, image: Image, labels: dict[str, str], tmp_path: Path
) -> None:
    """The supervisor is a process of its own here and dies by SIGKILL right after the launch."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    box = tmp_path / "box"
    box.mkdir()
    script = f"""
import asyncio, os, signal
from pathlib import Path
from windtunnel.domain.task import Limits
from windtunnel.environments.choose import clear, make
from windtunnel.environments.interface import Image, Mount, SandboxSpec
async def main():
    environment = make({adapter!r}, work_root=Path({str(tmp_path / "work")!r}))
    await environment.facts()
    sandbox = await environment.open(SandboxSpec(name="dsw-orphan-{uuid.uuid4().hex[:8]}", labels={labels!r},
        image=Image({image.reference!r}, {image.id!r}, "/app"), network="none", limits=Limits(memory_mb=256),
        scratch=Path({str(scratch)!r}), mounts=[Mount(Path({str(box)!r}), "{BOX}", False)]))
    code = 'while :; do date +%s%N > "$0/beat.new"; mv "$0/beat.new" "$0/beat"; sleep 0.1; done'
    await sandbox.launch(["/bin/sh", "-c", code, sandbox.inside("{BOX}")], env={{}}, cwd=None, user=None)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script], capture_output=True)
    assert done.returncode == -9, done.stderr

    async def beats() -> bool:
        first = (box / "beat").read_text() if (box / "beat").exists() else ""
        await asyncio.sleep(0.3)
        return (box / "beat").exists() and (box / "beat").read_text() != first

    await until(beats)
    assert len(await environment.left(labels)) == 1
    cleared = clear(adapter, work_root=tmp_path / "work")
    assert len(cleared) == (0 if adapter == "docker" else 1)
    assert len(await environment.sweep(labels)) == 1 - len(cleared)
    assert await environment.left(labels) == []
    assert not await beats()


# --- images


@every_adapter
async def test_a_missing_image_is_named(environment: Environment, tmp_path: Path) -> None:
    source = ImageSource(reference="localhost:1/windtunnel/no-such-image:1")

    with pytest.raises(AttemptFault, match="no-such-image") as caught:
        await environment.image(source, task_dir=tmp_path, build_timeout_s=10)

    assert caught.value.reason == "image_missing"


@every_adapter
async def test_a_dockerfile_that_cannot_be_built_says_which_step(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment" / "Dockerfile").write_text("FROM windtunnel-base:bookworm\nRUN echo tried; exit 3\n")
    source = ImageSource(context="environment", base="windtunnel-base:bookworm")

    with pytest.raises(AttemptFault, match="exit 3") as caught:
        await environment.image(source, task_dir=tmp_path, build_timeout_s=60)

    assert caught.value.reason == "image_build_failed"


@every_adapter
async def test_an_image_is_made_once_per_content(environment: Environment, task_dir: Path, image: Image) -> None:
    source = ImageSource(context="environment", base="windtunnel-base:bookworm")

    again = await environment.image(source, task_dir=task_dir, build_timeout_s=60)

    assert again == image
    assert image.workdir == "/app"
