"""Pick the adapters that a confirmed plan names and put them on a bench; take everything down again at the end."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from windtunnel.domain.digest import to_json
from windtunnel.domain.plan import Plan
from windtunnel.domain.role import Route
from windtunnel.environments.choose import clear, make
from windtunnel.environments.rootdir import remove_tree
from windtunnel.errors import Drifted, FileDamaged
from windtunnel.gateway.client import GatewayClient
from windtunnel.gateway.interface import GatewayFacts, StartFile, Upstream
from windtunnel.gateway.replay import start_replay
from windtunnel.host.processes import ProcessId, kill_tree
from windtunnel.steps.bench import Bench, Journal
from windtunnel.store.files import read_json, write_atomic
from windtunnel.store.layout import RunDir
from windtunnel.subjects.bundle import Bundle, bundle_for
from windtunnel.subjects.registry import find

__all__ = ["open_bench", "work_place", "work_root"]


_AWAY = "windtunnel-work-"


def work_place(run: RunDir) -> Path:
    """The name of a run's place for sandboxes; it exists while the run does."""
    return run.root / "work"


@contextmanager
def work_root(run: RunDir) -> Iterator[Path]:
    """Where a run's sandboxes are made, removed when it ends: below the run, or in /var/tmp where a sandbox's other
    user could not reach that (a checkout below /root). A former run's is removed first, however that ended."""
    place = work_place(run)
    _remove_work(place)
    if _others_can_reach(run.root):
        place.mkdir()
    else:
        away = Path(tempfile.mkdtemp(prefix=_AWAY, dir="/var/tmp"))
        away.chmod(0o755)
        place.symlink_to(away)
    try:
        yield place.resolve()
    finally:
        _remove_work(place)


def _remove_work(place: Path) -> None:
    if place.is_symlink():
        target = place.readlink()
        if target.parent == Path("/var/tmp") and target.name.startswith(_AWAY):
            remove_tree(target)
        place.unlink()
    else:
        remove_tree(place)


def _remove_private(run: RunDir) -> None:
    """Tokens go; what the gateway had to say (never a secret) stays with the evidence."""
    said = run.private / "gateway.log"
    if said.is_file() and said.stat().st_size:
        run.evidence.mkdir(exist_ok=True)
        shutil.copyfile(said, run.evidence / "gateway.log")
    remove_tree(run.private)


def _others_can_reach(path: Path) -> bool:
    """Only root's sandboxes have another user; for everybody else the run's own directory will do."""
    if os.geteuid() != 0:
        return True
    return all(parent.stat().st_mode & 0o001 for parent in [path.resolve(), *path.resolve().parents])


@asynccontextmanager
async def open_bench(plan: Plan, run: RunDir, journal: Journal) -> AsyncIterator[Bench]:
    """Everything a run needs, ready; on leaving nothing of it is left. Raises EngineAbsent, Drifted, InputWrong."""
    async with AsyncExitStack() as stack:
        end_former_gateway(run)
        stack.callback(_remove_private, run)
        # Before the place goes, what still runs in it: local and plain keep their register there.
        for name in await asyncio.to_thread(clear, plan.settings.environment, work_root=work_place(run)):
            journal.line(f"ended {name}, which an earlier supervisor had left running")
        root = stack.enter_context(work_root(run))
        environment = make(plan.settings.environment, work_root=root)
        stack.push_async_callback(environment.close)
        await environment.facts()
        bundle = _bundle(plan)
        gateway = await _gateway(plan, run, stack) if any(config.roles for config in plan.configs) else None
        yield Bench(
            plan=plan,
            run=run,
            environment=environment,
            subject=find(plan.subject.name, plan.subject.version),
            gateway=gateway,
            journal=journal,
            bundle=bundle.path,
            work_root=root,
        )


def _bundle(plan: Plan) -> Bundle:
    bundle = bundle_for(plan.subject.name, plan.subject.version)
    if bundle.hash != plan.subject.bundle:
        raise Drifted(f"bundle of {plan.subject.name}", bundle.path, plan.subject.bundle, bundle.hash)
    return bundle


def end_former_gateway(run: RunDir) -> None:
    """End the gateway that a dead supervisor of this run left behind, by its identity, and remove its sockets."""
    start_file = run.private / "gateway-start.json"
    try:
        facts = read_json(run.gateway, GatewayFacts)
        kill_tree(ProcessId(pid=facts.pid, start_time=facts.start_time, boot_id=facts.boot_id))
    except (FileNotFoundError, FileDamaged):
        pass
    try:
        former = read_json(start_file, StartFile)
    except (FileNotFoundError, FileDamaged):
        return
    door_root = Path(former.door_root)
    if door_root.name.startswith("wt-") and not door_root.is_symlink():
        shutil.rmtree(door_root, ignore_errors=True)


async def _gateway(plan: Plan, run: RunDir, stack: AsyncExitStack) -> GatewayClient:
    # Socket paths are limited to 108 bytes, a run directory's path is not: sockets live in a short directory.
    doors = Path(tempfile.mkdtemp(prefix="wt-"))
    stack.callback(shutil.rmtree, doors, ignore_errors=True)
    doors.chmod(0o711)
    upstreams = [await _upstream(plan, run, route, stack) for route in _routes(plan)]
    start = StartFile(
        run_id=plan.run_id,
        plan_identity=plan.planIdentity,
        nonce=secrets.token_hex(16),
        run_dir=str(run.root.resolve()),
        door_root=str(doors),
        control_socket=str(doors / "control.sock"),
        doors_file=str(run.private.resolve() / "doors.json"),
        upstreams=tuple(upstreams),
        capture=plan.settings.capture_bodies,
    )
    start_file = run.private / "gateway-start.json"
    write_atomic(start_file, to_json(start), mode=0o600)
    gateway = await GatewayClient.start(start_file, _environment_for(plan))
    stack.push_async_callback(gateway.shutdown)
    return gateway


def _routes(plan: Plan) -> list[Route]:
    """Each route once; the planner refuses two different routes of one name in a plan."""
    return list({route.name: route for config in plan.configs for route in config.routes}.values())


def _environment_for(plan: Plan) -> dict[str, str]:
    """The gateway's environment: its credentials by name, and what a Python process needs. Nothing else."""
    names = {route.credential for route in _routes(plan) if route.credential}
    keep = {"PATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "VIRTUAL_ENV", "PYTHONPATH"}
    return {key: value for key, value in os.environ.items() if key in names | keep}


async def _upstream(plan: Plan, run: RunDir, route: Route, stack: AsyncExitStack) -> Upstream:
    if route.kind == "http":
        assert route.base_url is not None, "an http route has a base URL"
        return Upstream(route=route, base_url=route.base_url)
    config = next(c for c in plan.configs if any(r.name == route.name for r in c.routes))
    assert route.script is not None, "a replay route has a script"
    run.evidence.mkdir(exist_ok=True)
    replay = await start_replay(
        run.inputs / config.name / route.script,
        run.private / f"replay-{route.name}.json",
        run.evidence / f"replay-{route.name}.ndjson",
        require_key_env=route.credential,
        env=_environment_for(plan),
    )
    stack.push_async_callback(replay.stop)
    return Upstream(route=route, base_url=replay.base_url)
