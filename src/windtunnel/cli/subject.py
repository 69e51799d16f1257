"""`windtunnel subject`: build and list the bundles of agent products."""

from __future__ import annotations

import click

from windtunnel.subjects.bundle import build_bundle, built_bundles
from windtunnel.subjects.registry import find, parse

__all__ = ["subject_group"]


@click.group("subject")
def subject_group() -> None:
    """Build and list the bundles of agent products."""


@subject_group.command("build")
@click.argument("name")
def build_command(name: str) -> None:
    """Build the bundle of NAME (e.g. pi@1.6.0) from its committed lock, once."""
    wanted, version = parse(name)
    subject = find(wanted, version)
    bundle = build_bundle(subject.name, subject.version)
    click.echo(f"{subject.name}@{subject.version} {bundle.hash}\n{bundle.path}")


@subject_group.command("list")
def list_command() -> None:
    """The bundles that are built on this machine."""
    for bundle in built_bundles():
        click.echo(f"{bundle.path.name}  {bundle.hash}")
