"""One try at a cell: the subject works in a sandbox until it is done, then every process of it ends.

    prepare image -> create -> place -> start -> follow -> end -> (hand_over.py: collect) -> (grading.py: verify)

Everything the subject can write is a claim. What decides later comes from host processes: the gateway's wire
records, the collector's and verifier's containers.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from windtunnel.domain.cell import Cell, container_name
from windtunnel.domain.digest import decode, to_json
from windtunnel.domain.outcome import Reason
from windtunnel.domain.plan import ConfigPlan
from windtunnel.domain.role import EXECUTOR
from windtunnel.domain.task import Task
from windtunnel.environments.interface import BOX, BUNDLE, DOOR, INPUTS, Image, Mount, Observed, Sandbox, SandboxSpec
from windtunnel.errors import AttemptFault
from windtunnel.gateway.interface import Door, DoorClosed
from windtunnel.host.clock import monotonic
from windtunnel.steps.bench import Bench, root_id
from windtunnel.steps.phases import Phases
from windtunnel.store.box import plain_bytes, read_plain_file
from windtunnel.store.layout import AttemptDir
from windtunnel.store.tasks import read_instruction
from windtunnel.subjects.driver_spec import EXIT_RECORD, RELAY_PORT, DriverSpec, ExitRecord
from windtunnel.subjects.interface import Launch, LaunchContext

__all__ = ["Work", "close_door", "end", "follow", "launch", "open_sandbox", "start_driver"]

# An attempt without a limit of its own still needs an end that the gateway's door can be tied to.
NO_LIMIT_S = 24 * 3600.0
# The driver enforces the deadline alone; the supervisor steps in when the driver cannot any more.
DRIVER_GRACE_S = 30.0
BOX_LIMIT_BYTES = 2 * 1024**3
_POLL_S = 0.1
_MEASURE_EVERY = 150  # polls: about every 15 s
_PROBE_EVERY = 10


@dataclass
class Work:
    """What is known about an attempt while it runs. `key`: its name in wire records; `scratch`: private host directory.

    `graders`: host directory with the approved tests/ and pre_artifacts.sh; `sandbox`, `snapshot`: what clean-up has to
    remove.
    """

    bench: Bench
    cell: Cell
    task: Task
    config: ConfigPlan
    number: int
    dir: AttemptDir
    scratch: Path
    phases: Phases
    graders: Path
    image: Image | None = None
    verifier_image: Image | None = None
    sandbox: Sandbox | None = None
    snapshot: Image | None = None
    exit: ExitRecord | None = None
    driver_killed: bool = False
    overdue: bool = False
    over_limit: str | None = None
    observed: Observed | None = None
    door: DoorClosed | None = None
    agent_wall_s: float | None = None
    cleanup: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"{self.cell.id}#{self.number}"

    @property
    def timeout_s(self) -> float:
        return self.bench.agent_timeout_s(self.task) or NO_LIMIT_S

    @property
    def uses_gateway(self) -> bool:
        return self.bench.gateway is not None and bool(self.config.roles)

    def name(self, part: str) -> str:
        """A container's name: two runs of one name in two results trees do not meet in the engine."""
        run = f"{root_id(self.bench.results_root)}/{self.bench.plan.run_id}"
        return container_name(self.cell, attempt=self.number, run_id=run, part=part)

    @property
    def sandboxes(self) -> Path:
        """Where this attempt's sandboxes may be made on the host."""
        return self.bench.work_root / self.scratch.name

    def sandbox_scratch(self, part: str) -> Path:
        path = self.sandboxes / part
        path.mkdir(parents=True)
        return path

    def scratch_for(self, part: str) -> Path:
        path = self.scratch / part
        path.mkdir(parents=True)
        return path


async def open_sandbox(work: Work) -> Sandbox:
    """Image, door, sandbox: everything there, nothing of the subject running."""
    bench, task = work.bench, work.task
    async with work.phases("prepare_image", task.build_timeout_s + 60):
        image = await bench.environment.image(
            task.image, task_dir=bench.task_dir(task), build_timeout_s=task.build_timeout_s
        )
        work.image = bench.pin(f"task {task.id}", image)
    async with work.phases("create", 180):
        mounts = [
            Mount(bench.bundle, BUNDLE, read_only=True),
            Mount(work.scratch_for("in"), INPUTS, read_only=True),
            Mount(work.dir.box, BOX, read_only=False),
        ]
        if work.uses_gateway:
            mounts.append(Mount(await _open_door(work), DOOR, read_only=True))
        work.sandbox = await bench.environment.open(
            SandboxSpec(
                name=work.name("subject"),
                labels=bench.labels(work.cell, attempt=work.number, part="subject"),
                image=work.image,
                network=task.agent_network,
                limits=bench.limits(task),
                scratch=work.sandbox_scratch("subject"),
                workdir=task.workdir or work.image.workdir,
                user=task.agent_user,
                env=task.env,
                mounts=mounts,
            )
        )
    return work.sandbox


async def _open_door(work: Work) -> Path:
    assert work.bench.gateway is not None
    token = "wt_" + secrets.token_urlsafe(24)
    (work.scratch / "in" / "token").write_text(token)
    # Everything that may still happen between now and the agent's last second, each at its longest.
    before_start = 180 + 600 + 300 + _healthcheck_s(work.task) + 60
    deadline = time.time() + before_start + work.timeout_s + DRIVER_GRACE_S
    door = Door(
        key=work.key,
        token=token,
        wire=str(work.dir.wire),
        bodies=str(work.dir.initial_context),
        roles=work.config.roles,
        deadline_epoch_ms=int(deadline * 1000),
    )
    return Path((await work.bench.gateway.open(door)).directory)


async def launch(work: Work, sandbox: Sandbox) -> None:
    """Place the inputs and start the driver, detached."""
    bench, task = work.bench, work.task
    async with work.phases("place", 300):
        launched = bench.subject.launch(_context(work, sandbox))
        for source, target in launched.placed.items():
            await sandbox.put(source, target)
    async with work.phases("healthcheck", _healthcheck_s(task)):
        await _until_healthy(task, sandbox)
    async with work.phases("start", 60):
        await start_driver(work, sandbox, launched)


def _context(work: Work, sandbox: Sandbox) -> LaunchContext:
    bench, config = work.bench, work.config
    inputs = bench.run.inputs / config.name
    executor = next((role for role in config.roles if role.name == EXECUTOR), None)
    return LaunchContext(
        task=work.task,
        instruction=read_instruction(bench.task_dir(work.task)),
        task_dir=bench.task_dir(work.task),
        model=bench.plan.model if executor else None,
        thinking=bench.plan.thinking,
        route=executor.route if executor else None,
        inputs=inputs,
        leaf=inputs / config.leaf if config.leaf else None,
        stage=work.scratch / "in",
        workdir_in=sandbox.inside(sandbox.spec.workdir or "/"),
        bundle_in=sandbox.inside(BUNDLE),
        inputs_in=sandbox.inside(INPUTS),
        box_in=sandbox.inside(BOX),
    )


async def start_driver(work: Work, sandbox: Sandbox, launched: Launch, *, check_paths: tuple[str, ...] = ()) -> None:
    """Write spec.json and start the driver on it; with `check_paths` it only asks the gateway these paths."""
    _write_spec(work, sandbox, launched, check_paths)
    bundle, inputs = sandbox.inside(BUNDLE), sandbox.inside(INPUTS)
    argv = [f"{bundle}/node", f"{bundle}/driver.mjs", f"{inputs}/spec.json"]
    await sandbox.launch(argv, env={}, cwd=None, user=work.task.agent_user)


def _write_spec(work: Work, sandbox: Sandbox, launched: Launch, check_paths: tuple[str, ...]) -> None:
    stage = work.scratch / "in"
    if launched.prompt is not None:
        (stage / "prompt.md").write_text(launched.prompt)
    own_network = sandbox.inside(BOX) == BOX and (work.bench.environment.name == "docker" or _is_closed(sandbox))
    spec = DriverSpec(
        mode="check" if check_paths else "run",
        check_paths=check_paths,
        attempt=work.key,
        protocol=launched.protocol,
        argv=launched.argv,
        env=dict(work.task.env) | dict(work.config.env) | dict(launched.env),
        cwd=sandbox.inside(sandbox.spec.workdir or "/"),
        prompt_file=None if launched.prompt is None else f"{sandbox.inside(INPUTS)}/prompt.md",
        box=sandbox.inside(BOX),
        socket=f"{sandbox.inside(DOOR)}/gateway.sock" if work.uses_gateway else None,
        relay_port=RELAY_PORT if own_network else 0,
        token_file=f"{sandbox.inside(INPUTS)}/token" if work.uses_gateway else None,
        render=launched.render,
        inputs=sandbox.inside(INPUTS),
        writable=launched.writable,
        deadline_epoch_ms=int((time.time() + work.timeout_s) * 1000),
        deadline_after_ms=int(work.timeout_s * 1000),
    )
    (stage / "spec.json").write_bytes(to_json(spec))


def _is_closed(sandbox: Sandbox) -> bool:
    return sandbox.spec.network == "none"


def _healthcheck_s(task: Task) -> float:
    check = task.healthcheck
    return 10.0 if check is None else check.start_period_s + (check.interval_s + check.timeout_s) * (check.retries + 2)


async def _until_healthy(task: Task, sandbox: Sandbox) -> None:
    check = task.healthcheck
    if check is None:
        return
    began, failures = monotonic(), 0
    while True:
        done = await sandbox.exec(["/bin/sh", "-c", check.command], timeout_s=check.timeout_s)
        if done.exit == 0:
            return
        starting = monotonic() - began < check.start_period_s
        failures += not starting
        if failures > check.retries:
            said = done.stderr[-200:].decode("utf-8", "replace")
            raise AttemptFault(Reason.HEALTHCHECK_FAILED, f"{check.command!r} exit {done.exit}: {said}")
        await asyncio.sleep(check.start_interval_s if starting else check.interval_s)


async def follow(work: Work, sandbox: Sandbox, *, limit_s: float | None = None) -> None:
    """Wait for the driver's exit record, its death, or the deadline, whichever comes first."""
    began = monotonic()
    limit = work.timeout_s + DRIVER_GRACE_S if limit_s is None else limit_s
    async with work.phases("follow", None):
        for turn in range(10**9):
            work.exit = _exit_record(work)
            if work.exit is not None:
                break
            if turn % _PROBE_EVERY == 0 and await sandbox.launched_exit() is not None:
                # The record is the driver's last act: once it is gone, one more look decides.
                work.exit = _exit_record(work)
                work.driver_killed = work.exit is None
                break
            if monotonic() - began > limit:
                work.overdue = True
                break
            work.over_limit = await _over_limit(work, sandbox) if turn % _MEASURE_EVERY == _MEASURE_EVERY - 1 else None
            if work.over_limit is not None:
                break
            _note_activity(work)
            await asyncio.sleep(_POLL_S)
    work.agent_wall_s = round(monotonic() - began, 3)


async def _over_limit(work: Work, sandbox: Sandbox) -> str | None:
    """Why the attempt has written too much, None while it has not. Engines do not enforce storage: it is polled."""
    storage = work.bench.limits(work.task).storage_mb
    written = None
    with suppress(AttemptFault):  # an engine that cannot tell now is asked again at the next turn
        written = None if storage is None else await sandbox.disk_bytes()
    if storage is not None and written is not None and written > storage * 1024 * 1024:
        return f"wrote {written} bytes, storage_mb is {storage}"
    box = await asyncio.to_thread(plain_bytes, work.dir.box)
    return f"box holds {box} bytes" if box > BOX_LIMIT_BYTES else None


def _exit_record(work: Work) -> ExitRecord | None:
    data = read_plain_file(work.dir.box / EXIT_RECORD, 1_000_000)
    if data is None:
        return None
    with suppress(ValueError, RecursionError, msgspec.MsgspecError):
        record = decode(data, ExitRecord)
        return record if record.attempt == work.key else None
    return None


def _note_activity(work: Work) -> None:
    with suppress(OSError):
        if time.time() - work.dir.wire.stat().st_mtime < 2 * _POLL_S:
            work.bench.journal.activity(work.cell.id, "model call")


async def end(work: Work, sandbox: Sandbox) -> None:
    """End every process of the subject, then close its door: no write and no model call comes after this."""
    async with work.phases("end", 120):
        await sandbox.end_processes()
        work.observed = await sandbox.observed()
        await sandbox.reclaim(BOX)
        await close_door(work)


async def close_door(work: Work) -> None:
    """Close the attempt's way out; safe to call twice."""
    if work.uses_gateway and work.door is None:
        assert work.bench.gateway is not None
        work.door = await work.bench.gateway.close(work.key)
