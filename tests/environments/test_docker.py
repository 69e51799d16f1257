"""What only the Docker adapter promises: limits, losses, the engine's own refusals."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from windtunnel.domain.task import ImageSource, Limits
from windtunnel.environments import docker_sandbox
from windtunnel.environments.docker import DockerEnvironment
from windtunnel.environments.docker_engine import Engine, socket_path
from windtunnel.environments.docker_sandbox import DockerSandbox
from windtunnel.environments.interface import BOX, Image, Mount, Sandbox, SandboxSpec
from windtunnel.errors import AttemptFault, EngineAbsent

Contained = Callable[..., Awaitable[Sandbox]]
CANARY = "canary-51b0aa9e"


def docker_cli(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def inspected(sandbox: Sandbox) -> dict[str, dict[str, object]]:
    return json.loads(docker_cli("inspect", sandbox.id))[0]


@pytest.mark.engine
async def test_limits_and_labels_are_set_as_asked(contained: Contained, labels: dict[str, str]) -> None:
    sandbox = await contained(fresh=("/logs/verifier",))

    shown = inspected(sandbox)

    host = shown["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 128 * 1024 * 1024
    assert (host["NanoCpus"], host["PidsLimit"], host["NetworkMode"]) == (500_000_000, 100, "none")
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}}
    assert shown["Name"] == f"/{sandbox.spec.name}"
    assert labels.items() <= shown["Config"]["Labels"].items()  # type: ignore[attr-defined]


@pytest.mark.engine
async def test_an_out_of_memory_kill_is_seen(contained: Contained) -> None:
    sandbox = await contained()
    before = await sandbox.observed()

    done = await sandbox.exec(["python3", "-c", "x = bytearray(400_000_000); print('survived')"])
    after = await sandbox.observed()
    await sandbox.end_processes()
    await sandbox.remove()

    assert before.oom_events == 0
    assert done.exit == 137 and b"survived" not in done.stdout
    assert after.oom_events == 1
    assert after.peak_memory is not None and 100_000_000 < after.peak_memory <= 128 * 1024 * 1024
    assert (await sandbox.observed()).oom_events == 1, "the last sample outlives the container"


@pytest.mark.engine
@pytest.mark.parametrize("verb", ["kill", "restart", "rm"])
async def test_a_container_touched_from_outside_is_lost(contained: Contained, verb: str) -> None:
    sandbox = await contained()
    await sandbox.launch(["sleep", "1000"], env={}, cwd=None, user=None)
    assert await sandbox.launched_exit() is None

    docker_cli(verb, *(["-f"] if verb == "rm" else ["-t", "0"] if verb == "restart" else []), sandbox.id)

    with pytest.raises(AttemptFault) as caught:
        await sandbox.launched_exit()
    assert caught.value.reason == "container_lost"


@pytest.mark.engine
async def test_a_command_in_a_lost_container_is_no_result_of_the_command(contained: Contained) -> None:
    sandbox = await contained()
    running = asyncio.create_task(sandbox.exec(["sleep", "1000"], timeout_s=30))
    await asyncio.sleep(0.5)

    docker_cli("kill", sandbox.id)

    with pytest.raises(AttemptFault) as caught:
        await running
    assert caught.value.reason == "container_lost"


@pytest.mark.engine
async def test_an_agent_that_kills_everything_does_not_end_the_container(contained: Contained) -> None:
    sandbox = await contained()
    await sandbox.launch(["/bin/sh", "-c", "kill -9 -1; kill -9 1; touch alive"], env={}, cwd=None, user=None)

    await asyncio.sleep(0.5)

    assert await sandbox.launched_exit() is not None
    assert (await sandbox.exec(["true"])).exit == 0


@pytest.mark.engine
async def test_a_container_full_of_processes_is_ended_and_can_still_be_read(
    contained: Contained, labels: dict[str, str], tmp_path: Path
) -> None:
    """With the pids limit reached no exec can start any more."""
    sandbox = await contained(limits=Limits(memory_mb=256, cpus=0.5, pids=20))
    bomb = "exec >/dev/null 2>&1; echo work > work; while :; do (while :; do sleep 100 & sleep 0.01; done) & done"
    await sandbox.launch(["/bin/sh", "-c", bomb], env={}, cwd=None, user=None)
    await asyncio.sleep(1.5)

    await sandbox.end_processes()

    snapshot = await sandbox.snapshot("frozen", labels)
    fetched = await sandbox.fetch("/app/work", tmp_path / "work", limit_bytes=100)
    assert fetched.files == 1 and snapshot.id.startswith("sha256:")
    with pytest.raises(AttemptFault) as caught:
        await sandbox.exec(["true"])
    assert caught.value.reason == "container_lost"


@pytest.mark.engine
async def test_a_replaced_shell_cannot_fake_the_end(contained: Contained, tmp_path: Path) -> None:
    """The agent is root: it puts a program in the place of the shell that would kill it, and stays."""
    sandbox = await contained()
    plant = "import os, time; os.setsid(); time.sleep(2); open('late', 'w').close(); time.sleep(100)"
    setup = (
        f'exec >/dev/null 2>&1; python3 -c "{plant}" & '
        "cp /bin/true /bin/true2; cat /bin/true2 > /tmp/x; cp /tmp/x /bin/sh.new; chmod 755 /bin/sh.new; "
        "mv /bin/sh.new /bin/sh; sleep 100"
    )
    await sandbox.launch(["/bin/sh", "-c", setup], env={}, cwd=None, user=None)
    await asyncio.sleep(0.5)

    await sandbox.end_processes()
    await asyncio.sleep(2.2)

    fetched = await sandbox.fetch("/app/late", tmp_path / "late", limit_bytes=100)
    assert not fetched.found


@pytest.mark.engine
async def test_a_replaced_sleep_does_not_pass_for_the_holders_own(contained: Contained, tmp_path: Path) -> None:
    """The holder starts "sleep 60" again after every kill; the agent made bash of it, and a script of `60`."""
    sandbox = await contained()
    script = "while :; do date +%s%N >> /app/late; read -t 0.1 < /dev/zero; done"
    setup = f"cp /bin/sleep /bin/rest; echo '{script}' > /app/60; cp /bin/bash /bin/new; mv /bin/new /bin/sleep"
    done = await sandbox.exec(["/bin/sh", "-c", f"cd /app; {setup}; pkill -9 -x sleep; /bin/rest 1; cat late"])
    assert done.stdout, (done, "the holder runs the agent's script")

    await sandbox.end_processes()
    await sandbox.fetch("/app/late", tmp_path / "first", limit_bytes=10_000_000)
    await asyncio.sleep(1)
    await sandbox.fetch("/app/late", tmp_path / "then", limit_bytes=10_000_000)

    assert (tmp_path / "first").read_bytes() == (tmp_path / "then").read_bytes() != b""
    with pytest.raises(AttemptFault) as caught:
        await sandbox.exec(["true"])
    assert caught.value.reason == "container_lost"


@pytest.mark.engine
@pytest.mark.parametrize(("storage_mb", "size"), [(100, "21G"), (None, "21G")])
async def test_holes_that_a_snapshot_would_fill_are_refused(
    contained: Contained, docker: DockerEnvironment, labels: dict[str, str], storage_mb: int | None, size: str
) -> None:
    sandbox = await contained(limits=Limits(memory_mb=128, pids=100, storage_mb=storage_mb))
    await sandbox.exec(["truncate", "-s", size, "/app/holes"])

    with pytest.raises(AttemptFault, match=r"wrote \d+ bytes, more than") as caught:
        await sandbox.snapshot("frozen", labels)

    assert caught.value.reason == "patch_too_big"
    assert await docker.left(labels) == [sandbox.spec.name]


@pytest.mark.engine
async def test_disk_use_that_cannot_be_told_is_unknown(contained: Contained) -> None:
    sandbox = await contained()
    await sandbox.exec(["/bin/sh", "-c", "head -c 1000000 /dev/zero > x"])
    known = await sandbox.disk_bytes()

    await sandbox.remove()

    assert known is not None and known >= 1_000_000
    assert await sandbox.disk_bytes() is None


class FaultyEngine:
    """An engine on a socket of its own; it fails the next `failures` inspections, and is slow about sizes."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "docker.sock"
        self.failures = 0
        self.asked = 0

    async def answer(self, request: web.Request) -> web.Response:
        if "size" in request.query:
            await asyncio.sleep(2)
            return web.json_response({"SizeRw": 5})
        if request.path.endswith("/version"):
            return web.json_response({"ApiVersion": "1.41"})
        if request.method == "POST":
            return web.json_response({"Id": "e1"}, status=201 if request.path.endswith("/exec") else 200)
        self.asked += 1
        if self.failures:
            self.failures -= 1
            return web.Response(status=500, text="the engine is busy")
        state = {"Running": True, "StartedAt": "then"}
        process = {"tty": False}
        return web.json_response({"Running": False, "ExitCode": 7, "ProcessConfig": process, "State": state})

    @asynccontextmanager
    async def sandbox(self, scratch: Path) -> AsyncIterator[DockerSandbox]:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.UnixSite(runner, str(self.socket)).start()
        engine = Engine({"DOCKER_HOST": f"unix://{self.socket}"})
        spec = SandboxSpec("x", {}, Image("i", "i"), "none", Limits(), scratch)
        shown = {"Id": "c1", "Config": {}, "State": {"Pid": 0, "StartedAt": "then"}}
        try:
            yield DockerSandbox(engine, spec, shown, "")
        finally:
            await engine.close()
            await runner.cleanup()


async def test_a_hiccup_of_the_engine_does_not_lose_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_sandbox, "_PAUSES", (0.01, 0.01, 0.01))
    engine = FaultyEngine(tmp_path)
    async with engine.sandbox(tmp_path / "scratch") as sandbox:
        await sandbox.launch(["true"], env={}, cwd=None, user=None)
        engine.failures = 3
        assert await sandbox.launched_exit() == 7
        engine.failures, engine.asked = 100, 0
        with pytest.raises(AttemptFault, match="the engine is busy") as caught:
            await sandbox.launched_exit()

    assert (caught.value.reason, engine.asked) == ("engine_error", 4)


async def test_a_slow_walk_for_the_size_is_unknown_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_sandbox, "_SIZE_S", 0.1)
    async with FaultyEngine(tmp_path).sandbox(tmp_path / "scratch") as sandbox:
        assert await sandbox.disk_bytes() is None


@pytest.mark.engine
async def test_environment_values_are_in_no_event_and_no_inspection(contained: Contained) -> None:
    since = str(int(time.time()) - 1)
    sandbox = await contained(env={"SPEC_KEY": CANARY})
    await sandbox.launch(["sleep", "100"], env={"KEY": CANARY}, cwd=None, user=None)
    seen = await sandbox.exec(["/bin/sh", "-c", 'echo "$SPEC_KEY"'], env={"KEY": CANARY})

    until = str(int(time.time()) + 1)
    events = docker_cli("events", "--since", since, "--until", until, "--filter", f"container={sandbox.id}")

    assert seen.stdout.decode().strip() == CANARY
    assert "exec_create" in events
    assert CANARY not in events + docker_cli("inspect", sandbox.id)


@pytest.mark.engine
async def test_fresh_directories_leave_no_volume_behind(contained: Contained) -> None:
    sandbox = await contained(fresh=("/logs/verifier",))
    volume = [mount["Name"] for mount in inspected(sandbox)["Mounts"] if mount["Type"] == "volume"]  # type: ignore[index]

    await sandbox.remove()

    listed = docker_cli("volume", "ls", "-q").split()
    assert len(volume) == 1 and volume[0] not in listed


@pytest.mark.engine
async def test_the_user_of_a_command_is_the_one_asked_for(contained: Contained, tmp_path: Path) -> None:
    sandbox = await contained(user="nobody")

    spec_user = await sandbox.exec(["id", "-un"])
    asked = await sandbox.exec(["id", "-un"], user="root")
    slow = await sandbox.exec(["/bin/sh", "-c", "sleep 100 & sleep 100"], timeout_s=0.5)
    processes = docker_cli("top", sandbox.id, "-eo", "pid,args")

    assert (spec_user.stdout, asked.stdout, slow.timed_out) == (b"nobody\n", b"root\n", True)
    assert "sleep 100" not in processes


@pytest.mark.engine
async def test_a_user_without_root_gets_the_box_back(contained: Contained, tmp_path: Path) -> None:
    """The same call made by an unprivileged member of the engine's group."""
    box = tmp_path / "box"
    box.mkdir()
    sandbox = await contained(mounts=[Mount(box, BOX, read_only=False)])
    await sandbox.exec(["/bin/sh", "-c", f"cd {BOX}; mkdir -m 700 d; echo x > d/f; ln -s /etc/shadow d/link"])
    before = Path("/etc/shadow").stat().st_uid

    await sandbox._chown_in_container(box, _owner(65533))  # type: ignore[attr-defined]

    assert {path.lstat().st_uid for path in box.rglob("*")} == {65533}
    assert Path("/etc/shadow").stat().st_uid == before
    await sandbox.reclaim(BOX)
    assert {path.lstat().st_uid for path in box.rglob("*")} == {os.geteuid()}


def _owner(uid: int) -> object:
    from windtunnel.environments.rootdir import Owner

    return Owner(uid, uid)


@pytest.mark.engine
async def test_facts_name_the_engine(docker: DockerEnvironment) -> None:
    facts = await docker.facts()

    assert facts.name == "docker" and "API 1." in facts.version
    assert facts.memory_enforced_by == "engine"


@pytest.mark.engine
async def test_an_image_without_a_shell_is_named(
    contained: Contained, docker: DockerEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment" / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /x\n")
    image = await docker.image(
        ImageSource(context="environment", base="scratch"), task_dir=tmp_path, build_timeout_s=60
    )
    try:
        with pytest.raises(AttemptFault, match="/bin/sh") as caught:
            await contained(image=image, workdir="/")
        assert caught.value.reason == "engine_error"
    finally:
        await docker.remove_image(image)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"DOCKER_HOST": "tcp://10.0.0.1:2375"}, "remote engines are not supported"),
        ({"DOCKER_HOST": "ssh://someone:secret@host"}, "remote engines are not supported"),
        ({"DOCKER_CONTEXT": "desktop-linux"}, "contexts are not read"),
    ],
)
def test_engines_elsewhere_are_refused_with_the_reason(environ: dict[str, str], said: str) -> None:
    with pytest.raises(EngineAbsent, match=said) as caught:
        socket_path(environ)
    assert "secret" not in str(caught.value)


async def test_a_dead_socket_is_an_absent_engine(tmp_path: Path) -> None:
    environment = DockerEnvironment(environ={"DOCKER_HOST": f"unix://{tmp_path}/docker.sock"})
    try:
        with pytest.raises(EngineAbsent, match="does not answer"):
            await environment.facts()
    finally:
        await environment.close()


async def test_a_call_that_hangs_is_bounded_and_named(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    server = await asyncio.start_unix_server(hang, tmp_path / "docker.sock")
    engine = Engine({"DOCKER_HOST": f"unix://{tmp_path}/docker.sock"})
    with pytest.raises(AttemptFault, match=r"docker rm: no answer in 0\.2 s") as caught:
        async with engine.bounded("rm", 0.2):
            await engine.docker.containers.container("x").delete()
    assert caught.value.reason == "engine_error"
    await engine.close()
    await left.wait()
    server.close()
    await server.wait_closed()


def test_the_adapters_are_not_imported_before_they_are_used() -> None:
    code = "import sys, windtunnel.environments.choose; print('aiodocker' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"False\n"
