"""Environment `local`: bubblewrap, no engine. Not a security boundary: for trusted tasks only."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from windtunnel.domain.task import Limits
from windtunnel.environments.bubblewrap import SANDBOX_OWNER, Bind, Bubblewrap, find_bubblewrap
from windtunnel.environments.bubblewrap_run import run_attached
from windtunnel.environments.cgroup import OwnCgroup
from windtunnel.environments.disk_environment import DiskEnvironment
from windtunnel.environments.disk_sandbox import SandboxRecord
from windtunnel.environments.interface import EnvironmentFacts, Sandbox, SandboxSpec
from windtunnel.environments.local_sandbox import LocalSandbox, end_recorded
from windtunnel.environments.rootdir import remove_tree
from windtunnel.errors import AttemptFault, EngineAbsent

__all__ = ["LocalEnvironment"]

_REMEDY = "Use --environment plain (no isolation) or docker"


class LocalEnvironment(DiskEnvironment):
    """See the port. The program is looked for once."""

    name = "local"

    def __init__(self, *, work_root: Path) -> None:
        super().__init__(work_root=work_root, owner=SANDBOX_OWNER if os.geteuid() == 0 else None)
        self._etc = self._work_root / "etc"
        self._found: Bubblewrap | None = None

    def _bubblewrap(self) -> Bubblewrap:
        self._found = self._found or find_bubblewrap()
        if self._found is None:
            raise EngineAbsent(self.name, "there is no bubblewrap from 0.8 on (and, as root, no setpriv)", _REMEDY)
        return self._found

    async def facts(self) -> EnvironmentFacts:
        """See the port: one sandbox is really started."""
        bubblewrap = self._bubblewrap()
        self._make_work_root()
        self._write_etc()
        await self._prove(bubblewrap)
        group = await asyncio.to_thread(_probe_group)
        who = f"uid {SANDBOX_OWNER.uid}" if bubblewrap.drop else "the caller's user"
        return EnvironmentFacts(
            name=self.name,
            version=f"bubblewrap {bubblewrap.version}",
            isolation=f"bubblewrap namespaces, processes run as {who} without capabilities; cpus not limited; "
            "not a security boundary: trusted tasks only",
            memory_enforced_by="cgroup" if group else "nothing",
        )

    async def _prove(self, bubblewrap: Bubblewrap) -> None:
        place = Path(tempfile.mkdtemp(dir=self._work_root, prefix=".probe-"))
        try:
            options = bubblewrap.options(
                binds=[Bind(place, "/probe", read_only=True)],
                network="none",
                env={"PATH": "/usr/bin:/bin"},
                cwd="/",
                etc=self._etc,
                attached=True,
            )
            done = await run_attached(bubblewrap, options, ["true"], [], timeout_s=30, output_limit=10_000)
        except AttemptFault as fault:
            raise EngineAbsent(self.name, f"bubblewrap does not work here: {fault.detail}", _REMEDY) from fault
        finally:
            remove_tree(place)
        if done.exit != 0:
            said = done.stderr[-300:].decode("utf-8", "replace").strip()
            raise EngineAbsent(self.name, f"bubblewrap does not work here: {said}", _REMEDY)

    def _write_etc(self) -> None:
        """The users and groups that the sandbox knows: root and the one its processes run as."""
        uid, gid = (self._owner.uid, self._owner.gid) if self._owner else (os.geteuid(), os.getegid())
        self._etc.mkdir(mode=0o755, exist_ok=True)
        (self._etc / "passwd").write_text(
            f"root:x:0:0:root:/root:/usr/sbin/nologin\nwindtunnel:x:{uid}:{gid}:windtunnel:/home:/bin/sh\n"
        )
        (self._etc / "group").write_text(f"root:x:0:\nwindtunnel:x:{gid}:\n")

    async def open(self, spec: SandboxSpec) -> Sandbox:
        """See the port."""
        bubblewrap = self._bubblewrap()
        id_, register = self._register(spec)
        self._write_etc()
        sandbox = LocalSandbox(id_, spec, self._images, register, self._owner)
        await asyncio.to_thread(sandbox.prepare, bubblewrap, self._etc)
        return sandbox

    def _end_recorded(self, record: SandboxRecord) -> None:
        end_recorded(Path(record.scratch) / "state", record.id)


def _probe_group() -> bool:
    group = OwnCgroup.make(f"windtunnel-probe-{os.getpid()}", Limits(memory_mb=64))
    if group:
        group.remove()
    return group is not None
