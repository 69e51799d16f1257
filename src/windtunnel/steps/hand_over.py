"""Collect: freeze the ended sandbox, run the task's collect hooks in a copy of it, take the patch and the artifacts.

The collector is a new sandbox of the frozen file system: no network, no mount of ours, nothing of the agent runs.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from windtunnel.domain.digest import sha256_bytes, to_json
from windtunnel.domain.outcome import Reason
from windtunnel.domain.patch import count_files, tree_patch
from windtunnel.domain.result import PatchFacts
from windtunnel.domain.task import Artifact
from windtunnel.environments.interface import Image, Sandbox, SandboxSpec
from windtunnel.errors import AttemptFault
from windtunnel.steps.attempt import Work
from windtunnel.steps.repository import OUT, Repository, commit_all, find_repository, patch_since

__all__ = ["Before", "HandOver", "collect", "look_before"]

ARTIFACT_LIMIT_BYTES = 512 * 1024 * 1024
PATCH_LIMIT_BYTES = 50 * 1024 * 1024
TREE_LIMIT_BYTES = 32 * 1024 * 1024
OVER = ": over the limit"  # how a fetch says that it left something behind for its size


@dataclass(frozen=True)
class Before:
    """The work directory before the agent started: its repository, or a copy of its files when it has none (None when
    it is too big to keep)."""

    repository: Repository | None
    tree: Path | None


@dataclass(frozen=True)
class HandOver:
    """What crosses to the verifier. `snapshot`: the frozen file system; `artifacts`: host path of each declared
    artifact by its source path; `patch` None: it cannot be told."""

    snapshot: Image
    artifacts: dict[str, Path]
    patch: PatchFacts | None


async def look_before(work: Work, sandbox: Sandbox) -> Before:
    """Remember the state that the patch is made against."""
    workdir = sandbox.spec.workdir
    if workdir is None or workdir == "/":
        return Before(None, None)
    repository = await find_repository(sandbox, workdir)
    if repository is not None:
        return Before(repository, None)
    tree = work.scratch / "before"
    fetched = await sandbox.fetch(workdir, tree, limit_bytes=TREE_LIMIT_BYTES)
    return Before(None, tree if fetched.found and not fetched.skipped else None)


async def collect(work: Work, sandbox: Sandbox, before: Before) -> HandOver:
    """The collect phase. Raises AttemptFault(collect_failed|patch_too_big|engine_error)."""
    task = work.task
    budget = 300 + sum(hook.timeout_s for hook in task.collect)
    async with work.phases("collect", budget):
        snapshot = await sandbox.snapshot(
            work.name("snapshot"), work.bench.labels(work.cell, attempt=work.number, part="snapshot")
        )
        work.snapshot = snapshot  # also when collecting fails, somebody has to remove it
        work.cleanup.append(asyncio.create_task(sandbox.remove()))
        collector = await _open_collector(work, snapshot)
        try:
            patch, stripped = await _take_patch(work, collector, before)
            await _run_hooks(work, collector)
            await collector.end_processes()
            artifacts = await _take_artifacts(work, collector)
        finally:
            work.cleanup.append(asyncio.create_task(collector.remove()))
    return HandOver(snapshot, artifacts, _keep_patch(work, patch, stripped))


async def _open_collector(work: Work, snapshot: Image) -> Sandbox:
    return await work.bench.environment.open(
        SandboxSpec(
            name=work.name("collector"),
            labels=work.bench.labels(work.cell, attempt=work.number, part="collector"),
            image=snapshot,
            network="none",
            limits=work.bench.limits(work.task),
            scratch=work.sandbox_scratch("collector"),
            workdir=work.task.workdir or snapshot.workdir,
            env=work.task.env,
            fresh=(OUT,),
        )
    )


async def _take_patch(work: Work, collector: Sandbox, before: Before) -> tuple[bytes | None, int]:
    scratch = work.scratch_for("patch")
    if before.repository is not None:
        stripped = await commit_all(collector, before.repository, scratch)
        return await patch_since(collector, before.repository, scratch, PATCH_LIMIT_BYTES), stripped
    workdir = collector.spec.workdir
    if before.tree is None or workdir is None:
        return None, 0
    fetched = await collector.fetch(workdir, scratch / "after", limit_bytes=TREE_LIMIT_BYTES)
    if not fetched.found or any(OVER in reason for reason in fetched.skipped):
        return None, 0
    return await asyncio.to_thread(lambda: tree_patch(_tree(before.tree), _tree(scratch / "after"))), 0


def _tree(root: Path | None) -> dict[str, bytes]:
    if root is None:
        return {}
    files = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


async def _run_hooks(work: Work, collector: Sandbox) -> None:
    task = work.task
    if task.pre_artifacts:
        await collector.put(work.graders / "pre_artifacts.sh", f"{OUT}/pre_artifacts.sh")
        script = ["/bin/sh", f"{collector.inside(OUT)}/pre_artifacts.sh"]
        await _hook(work, collector, script, "pre_artifacts.sh", 300, None)
    for number, hook in enumerate(task.collect, 1):
        await _hook(work, collector, ["/bin/sh", "-c", hook.command], f"collect {number}", hook.timeout_s, hook.user)


async def _hook(work: Work, collector: Sandbox, argv: list[str], name: str, timeout_s: float, user: str | None) -> None:
    git_off = {
        "GIT_CEILING_DIRECTORIES": collector.inside("/"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_COUNT": "3",
    }
    for number, (key, value) in enumerate(
        [("core.hooksPath", "/dev/null"), ("core.fsmonitor", "false"), ("safe.directory", "*")]
    ):
        git_off |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    cwd = collector.inside(collector.spec.workdir or "/")
    done = await collector.exec(argv, env=git_off, cwd=cwd, user=user, timeout_s=timeout_s)
    log = work.dir.logs / f"{name.replace(' ', '-')}.log"
    log.write_bytes(done.stdout + done.stderr)
    if done.exit != 0:
        how = f"did not end in {timeout_s:g} s" if done.timed_out else f"exit {done.exit}"
        said = done.stderr[-200:].decode("utf-8", "replace").strip()
        raise AttemptFault(Reason.COLLECT_FAILED, f"{name} {how}: {said}")


async def _take_artifacts(work: Work, collector: Sandbox) -> dict[str, Path]:
    taken: dict[str, Path] = {}
    listed = []
    for number, artifact in enumerate(work.task.artifacts):
        target = _destination(work, artifact, number)
        target.parent.mkdir(parents=True, exist_ok=True)
        fetched = await collector.fetch(artifact.source, target, limit_bytes=ARTIFACT_LIMIT_BYTES)
        if any(OVER in reason for reason in fetched.skipped):
            raise AttemptFault(Reason.PATCH_TOO_BIG, f"artifact {artifact.source} is over {ARTIFACT_LIMIT_BYTES} bytes")
        if fetched.found:
            taken[artifact.source] = target
        listed.append({"source": artifact.source, "destination": target.name, "found": fetched.found})
    if listed:
        (work.dir.artifacts / "manifest.json").write_bytes(to_json({"schemaVersion": 1, "artifacts": listed}))
    return taken


def _destination(work: Work, artifact: Artifact, number: int) -> Path:
    """Below artifacts/; names that would clash or leave it get a number of their own."""
    wanted = PurePosixPath(artifact.destination or PurePosixPath(artifact.source).name)
    inside = not wanted.is_absolute() and ".." not in wanted.parts and wanted.parts
    target = work.dir.artifacts / (wanted if inside else f"artifact-{number}")
    return work.dir.artifacts / f"{number}-{target.name}" if target.exists() else target


def _keep_patch(work: Work, patch: bytes | None, stripped: int) -> PatchFacts | None:
    """The patch that the task itself hands over wins: it is what gets graded."""
    path = work.dir.patch
    if not path.is_file() and patch is not None:
        path.write_bytes(patch)
    shutil.rmtree(work.scratch / "before", ignore_errors=True)
    if not path.is_file():
        return None
    data = path.read_bytes()
    return PatchFacts(bytes=len(data), sha256=sha256_bytes(data), files=count_files(data), stripped_bytes=stripped)
