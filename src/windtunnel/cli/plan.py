"""`windtunnel plan`: resolve what will run, write it with its receipt, say how to confirm it. Starts nothing."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from windtunnel.cli.request import RecordedCommand, build_request, plan_options, refuse_not_built, versions
from windtunnel.domain.plan import Plan
from windtunnel.domain.receipt import receipt
from windtunnel.domain.receipt_text import to_bytes, to_markdown, to_text
from windtunnel.environments.choose import make
from windtunnel.environments.interface import EnvironmentFacts
from windtunnel.errors import EngineAbsent, InputWrong
from windtunnel.host.clock import utc_now
from windtunnel.host.memory import total_mb
from windtunnel.steps.draft import draft
from windtunnel.steps.draft_configs import wanted_subjects
from windtunnel.steps.draft_request import Facts, Request
from windtunnel.store.plans import write_plan
from windtunnel.subjects.bundle import bundle_for, platform
from windtunnel.subjects.interface import Subject
from windtunnel.subjects.registry import find, parse

__all__ = ["drafted", "environment_facts", "machine_facts", "plan_command"]

DEFAULT_SUBJECT = "pi"


@click.command("plan", cls=RecordedCommand)
@plan_options()
@click.option("--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True)
@click.pass_context
def plan_command(context: click.Context, /, form: str, **_flags: Any) -> int:
    """Resolve what will run; calls no model, starts nothing.

    Writes plans/RUN-ID.json and its receipt, and prints the command that confirms and runs exactly that plan.
    """
    plan = drafted(context, program=("windtunnel", "plan"))
    shown = receipt(plan)
    if form == "json":
        click.echo(to_bytes(shown), nl=False)
    elif form == "markdown":
        click.echo(to_markdown(shown), nl=False)
    else:
        click.echo(to_text(shown), nl=False)
        click.echo(f"plan      {plan.paths.plan_file}\nidentity  {plan.planIdentity}")
    return 0


def drafted(context: click.Context, *, program: tuple[str, ...]) -> Plan:
    """Draft and write the plan that a command's flags ask for. Raises InputWrong, NotBuiltYet, EngineAbsent."""
    refuse_not_built(context)
    asked = context.params["environment"]
    request = build_request(context, asked or "docker", program)
    subject = _subject(context.params["subject"], request)
    name, facts = environment_facts(asked)
    if name != request.environment:
        request = replace(request, environment=name)  # type: ignore[arg-type]  # one of the three names
    plan = draft(
        request,
        subject=subject,
        environment_facts=facts,
        facts=machine_facts(subject),
    )
    write_plan(plan, to_text(receipt(plan)))
    return plan


def machine_facts(subject: Subject) -> Facts:
    """What a plan for this subject may know of the machine it is made on. Raises InputWrong when the bundle is not
    built."""
    return Facts(
        environ=os.environ,
        now=utc_now(),
        memory_mb=total_mb(),
        cpus=os.cpu_count(),
        platform=platform(),
        bundle=bundle_for(subject.name, subject.version).hash,
        versions=versions(),
    )


def _subject(asked: str | None, request: Request) -> Subject:
    """The subject of the flag, else the one that the configs are pinned to, else pi."""
    if asked is not None:
        return find(*parse(asked))
    pins = wanted_subjects(request)
    if len(set(pins.values())) > 1:
        told = ", ".join(f"{name}: {pin}" for name, pin in pins.items())
        raise InputWrong(f"the configs are pinned to different subjects ({told}); plan them apart, or give --subject.")
    return find(*parse(next(iter(pins.values()), DEFAULT_SUBJECT)))


def environment_facts(asked: str | None) -> tuple[str, EnvironmentFacts]:
    """The environment that was asked for; by default docker, else (told on stderr) what works here without it."""
    if asked is not None:
        return asked, asyncio.run(_facts(asked))
    absent: EngineAbsent | None = None
    for name in ("docker", "local", "plain"):
        try:
            found = asyncio.run(_facts(name))
            if absent is not None:
                click.echo(f"windtunnel: {absent.message} Planning for --environment {name}.", err=True)
            return name, found
        except EngineAbsent as error:
            absent = absent or error
    assert absent is not None
    raise absent


async def _facts(name: str) -> EnvironmentFacts:
    with tempfile.TemporaryDirectory(prefix="windtunnel-plan-") as scratch:
        environment = make(name, work_root=Path(scratch))
        try:
            return await environment.facts()
        finally:
            await environment.close()
