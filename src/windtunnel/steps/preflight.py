"""Preflight: the credential path of every route, checked from inside a container before any model call.

The request goes the way a real call goes: container, driver, relay, socket, gateway, provider's host. What counts is
the gateway's own record of it; failing here is exit 4 with nothing spent.
"""

from __future__ import annotations

import shutil

from windtunnel.domain.cell import Cell, container_name
from windtunnel.domain.digest import to_json
from windtunnel.errors import AttemptFault, PreflightFailed
from windtunnel.gateway.interface import RouteCheck
from windtunnel.steps import attempt as steps_of
from windtunnel.steps.attempt import Work
from windtunnel.steps.bench import Bench
from windtunnel.steps.phases import Phases
from windtunnel.store.files import write_atomic
from windtunnel.store.layout import AttemptDir
from windtunnel.subjects.interface import Launch

__all__ = ["preflight"]

CHECK_TIMEOUT_S = 120.0

_REMEDY = {
    "credential_missing": "export the variable and start again",
    "unreachable": "check the base URL and this host's network",
    "tls_failed": "check the certificate of that host",
    "credential_refused": "the provider does not accept the key; replace it",
}


async def preflight(bench: Bench, cells: list[Cell]) -> None:
    """Check each route that the cells to run will use, once. Raises PreflightFailed naming role, route and remedy."""
    checked: set[str] = set()
    for cell in cells:
        for role in bench.config(cell).roles:
            if role.route in checked:
                continue
            checked.add(role.route)
            await _check_route(bench, cell, role.route, role.name)


async def _check_route(bench: Bench, cell: Cell, route: str, role: str) -> None:
    bench.journal.line(f"credential path of route {route} ({role}): checking from inside a container")
    scratch = bench.private_root / container_name(cell, attempt=0, run_id=bench.plan.run_id, part=f"check-{route}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    directory = AttemptDir(scratch / "attempt")
    for path in (directory.root, directory.box, directory.initial_context):
        path.mkdir()
    directory.box.chmod(0o777)
    phases = Phases(bench, cell, 0, silent=True)
    work = Work(bench, cell, bench.task(cell), bench.config(cell), 0, directory, scratch, phases, graders=scratch)
    try:
        found = await _ask(work, route, role)
    except AttemptFault as fault:
        raise PreflightFailed(f"credential path of route {route} could not be checked: {fault.message}") from fault
    finally:
        bench.later(_clean(work))
    evidence = bench.run.evidence / f"credential-{route}.json"
    evidence.parent.mkdir(exist_ok=True)
    write_atomic(evidence, to_json(found))
    bench.journal.line(f"credential path of route {route}: {found.verdict} ({evidence})")
    if found.verdict != "ok":
        raise PreflightFailed(
            f"role {role}, route {route}: {found.verdict} ({found.detail or found.status}), seen by the gateway from "
            f"inside a container ({evidence}); {_REMEDY[found.verdict]}"
        )


async def _ask(work: Work, route: str, role: str) -> RouteCheck:
    gateway = work.bench.gateway
    assert gateway is not None, "a config with roles has a gateway"
    sandbox = await steps_of.open_sandbox(work)
    nothing = Launch(protocol="exit", argv=())
    await steps_of.start_driver(work, sandbox, nothing, check_paths=(f"/check/{route}/{role}",))
    await steps_of.follow(work, sandbox, limit_s=CHECK_TIMEOUT_S)
    checks = await gateway.checks(work.key)
    await steps_of.end(work, sandbox)
    if not checks:
        said = work.exit.error or work.exit.checks if work.exit else "the driver left no record"
        raise AttemptFault("gateway_lost", f"no request reached the gateway through the container: {said}")
    return checks[-1]


async def _clean(work: Work) -> None:
    if work.sandbox is not None:
        await work.sandbox.remove()
    for directory in (work.scratch, work.sandboxes):
        shutil.rmtree(directory, ignore_errors=True)
