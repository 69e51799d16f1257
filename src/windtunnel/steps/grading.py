"""Verify phase: the task's own tests run in a container that the agent never touched; their files make the grade.

Shared mode: a fresh container of the frozen file system, with empty /tests and /logs/verifier of its own. Separate
mode: the verifier's image, and only the declared artifacts cross.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from typing import Any

from windtunnel.domain.digest import to_json
from windtunnel.domain.grade import Ungraded, grade
from windtunnel.domain.judgement import Grade
from windtunnel.domain.outcome import RULES, Reason
from windtunnel.domain.result import TestCounts, VerifierFacts
from windtunnel.environments.interface import Completed, Image, Sandbox, SandboxSpec
from windtunnel.errors import AttemptFault
from windtunnel.host.clock import monotonic, utc_now
from windtunnel.steps.attempt import Work
from windtunnel.steps.hand_over import HandOver
from windtunnel.store.box import read_plain_file
from windtunnel.store.layout import AttemptDir

__all__ = ["Graded", "grade_attempt", "prepare_verifier", "read_verifier_files"]

OUTPUT_LIMIT_BYTES = 256 * 1024 * 1024
STDOUT_LIMIT_BYTES = 8 * 1024 * 1024
_REPORTS = ("ctrf.json", "reports/ctrf.json", "new-ctrf.json", "new_ctrf.json", "reports/new-ctrf.json")
_JUNIT = ("junit.xml", "reports/junit.xml", "report.xml")
_READ_LIMIT = 64 * 1024 * 1024


@dataclass(frozen=True)
class Graded:
    grade: Grade
    detail: dict[str, Any] | None
    tests: TestCounts | None
    verifier: VerifierFacts
    record: str


async def grade_attempt(work: Work, handed: HandOver) -> Graded:
    """Grade, and again (the verifier alone) when it failed to give a grade, as the outcome table allows."""
    number = 0
    while True:
        number += 1
        try:
            graded = await _grade_once(work, handed, number)
        except AttemptFault as fault:
            # The agent's work is frozen: an engine's hiccup here costs another grading, never another agent.
            if fault.reason != Reason.ENGINE_ERROR or number > RULES[Reason.VERIFIER_ERROR].retries:
                raise
        else:
            if number > _retries(work, graded.grade.reason):
                return graded
        _keep_former(work.dir, number)


def _retries(work: Work, reason: Reason) -> int:
    rule = RULES[reason]
    override = work.bench.plan.settings.cell_retries
    return 0 if not rule.verifier_only else rule.retries if override is None else override


def _keep_former(directory: AttemptDir, number: int) -> None:
    shutil.move(directory.verifier, directory.grades / f"{number}.verifier")
    directory.verifier.mkdir()


async def _grade_once(work: Work, handed: HandOver, number: int) -> Graded:
    began = monotonic()
    async with work.phases("verify", work.task.verifier_timeout_s + work.task.build_timeout_s + 300):
        done, oom = await _run_tests(work, handed, number)
    wall = round(monotonic() - began, 3)
    result = grade(read_verifier_files(work.dir), reward_range=work.task.reward_range)
    verdict, detail, tests = _verdict(done, oom, result)
    facts = VerifierFacts(exit=done.exit, wall_s=wall, attempts=number)
    record = work.dir.grades / f"{number}.json"
    record.write_bytes(
        to_json({"schemaVersion": 1, "graded_at": utc_now(), "grade": verdict, "verifier": facts, "oom_events": oom})
    )
    return Graded(verdict, detail, tests, facts, f"grades/{number}.json")


def _verdict(done: Completed, oom: int | None, result: Any) -> tuple[Grade, dict[str, Any] | None, TestCounts | None]:
    if not isinstance(result, Ungraded) and not done.timed_out:
        grade_ = Grade(reward_binary=result.reward_binary, reward_partial=result.reward_partial)
        return grade_, result.detail, result.tests
    if done.timed_out:
        return Grade(reason=Reason.VERIFIER_TIMEOUT, detail="the tests did not end in time"), None, None
    if oom:
        return Grade(reason=Reason.VERIFIER_OUT_OF_MEMORY, detail=f"{oom} kill(s) by the memory limit"), None, None
    detail = f"{result.detail} (test command exit {done.exit})"
    return Grade(reason=result.reason, detail=detail), None, None


def read_verifier_files(directory: AttemptDir) -> dict[str, bytes]:
    """The files a grade is made of, by their path below verifier/; only plain files."""
    names = ("reward.json", "reward.txt", *_REPORTS, *_JUNIT)
    found = {name: read_plain_file(directory.verifier / name, _READ_LIMIT) for name in names}
    return {name: data for name, data in found.items() if data is not None}


async def _run_tests(work: Work, handed: HandOver, number: int) -> tuple[Completed, int | None]:
    sandbox = await _open_verifier(work, handed, number)
    try:
        await _place_inputs(work, handed, sandbox)
        argv = ["/bin/bash", f"{sandbox.inside('/tests')}/test.sh"]
        done = await sandbox.exec(
            argv,
            env=work.task.verifier_env,
            cwd=sandbox.inside(sandbox.spec.workdir or "/"),
            user=work.task.verifier_user,
            timeout_s=work.task.verifier_timeout_s,
            output_limit=STDOUT_LIMIT_BYTES,
        )
        (work.dir.verifier / "test-stdout.txt").write_bytes(done.stdout + done.stderr)
        await sandbox.end_processes()
        await _fetch_grade(work, sandbox)
        return done, (await sandbox.observed()).oom_events
    finally:
        work.cleanup.append(asyncio.create_task(sandbox.remove()))


async def _fetch_grade(work: Work, sandbox: Sandbox) -> None:
    """Only what the verifier container's own, initially empty mount holds counts."""
    fetched = work.scratch / f"verifier-{monotonic()}"
    await sandbox.fetch("/logs/verifier", fetched, limit_bytes=OUTPUT_LIMIT_BYTES)
    for entry in sorted(fetched.iterdir()) if fetched.is_dir() else ():
        target = work.dir.verifier / entry.name
        if not target.exists():
            shutil.move(entry, target)


async def _open_verifier(work: Work, handed: HandOver, number: int) -> Sandbox:
    bench, task = work.bench, work.task
    image = await _verifier_image(work, handed)
    network = bench.plan.settings.verifier_network or task.verifier_network
    separate = task.hand_over == "artifacts"
    return await bench.environment.open(
        SandboxSpec(
            name=work.name(f"verifier-{number}"),
            labels=bench.labels(work.cell, attempt=work.number, part="verifier"),
            image=image,
            network=network,
            limits=task.verifier_limits if separate else bench.limits(task),
            scratch=work.sandbox_scratch(f"verifier-{number}"),
            workdir=image.workdir if separate else (task.workdir or image.workdir),
            env=task.env if not separate else {},
            fresh=("/logs/verifier",) if separate else ("/logs/verifier", "/tests"),
        )
    )


async def _verifier_image(work: Work, handed: HandOver) -> Image:
    return handed.snapshot if work.task.hand_over == "snapshot" else await prepare_verifier(work)


async def prepare_verifier(work: Work) -> Image:
    """The image of a separate verifier; asked for before the agent starts, so that no agent works for nothing."""
    task, bench = work.task, work.bench
    if task.verifier_image is None:
        raise AttemptFault(Reason.VERIFIER_ERROR, "a separate verifier without an image")
    image = await bench.environment.image(
        task.verifier_image, task_dir=work.graders, build_timeout_s=task.build_timeout_s, tests=True
    )
    work.verifier_image = bench.pin(f"verifier of {task.id}", image)
    return image


async def _place_inputs(work: Work, handed: HandOver, sandbox: Sandbox) -> None:
    if work.task.hand_over == "artifacts":
        for source, path in handed.artifacts.items():
            await sandbox.put(path, source)
        return
    await sandbox.put(work.graders / "tests", "/tests")
