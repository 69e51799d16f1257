"""`run_batch`: plan, show, ask and run in one command, under the operators' old name and with its defaults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from windtunnel.cli import main as cli
from windtunnel.cli.plan import drafted
from windtunnel.cli.request import RecordedCommand, plan_options, refuse_not_built
from windtunnel.cli.run import run_plan
from windtunnel.domain.receipt import receipt
from windtunnel.domain.receipt_text import to_text
from windtunnel.errors import InputWrong
from windtunnel.store.plans import read_plan

__all__ = ["main", "run_batch_command"]


@click.command("run_batch", cls=RecordedCommand)
@plan_options(old_names=True)
@click.option("--force", is_flag=True, help="The same as --existing quarantine: nothing is ever overwritten.")
@click.option("--confirm", metavar="IDENTITY", help="The plan's identity, sha256:<64 hex>.")
@click.option("--yes", is_flag=True, help="Confirm without the identity; only for plans without a second role.")
@click.option("--operator", help="Who confirms. [default: the login name]")
@click.option("--detach", is_flag=True, help="Not built yet.")
@click.pass_context
def run_batch_command(
    context: click.Context, /, force: bool, confirm: str | None, yes: bool, operator: str | None, **_flags: Any
) -> int:
    """Plan a batch, show the receipt, ask, run and verify.

    Without a terminal and without --confirm or --yes it writes the plan, prints receipt, identity and the command
    that confirms it, and ends with exit code 3.
    """
    if force:
        context.params["existing"] = "quarantine"
    refuse_not_built(context)
    stored = _stored(context.params["plan_out"], confirm)
    if stored is not None:
        return run_plan(stored, confirm=confirm, yes=yes, operator=operator)
    plan = drafted(context, program=("run_batch",))
    asks = sys.stdin.isatty() and sys.stdout.isatty() and confirm is None and not yes
    if not asks:  # a terminal is shown the receipt together with the question
        click.echo(to_text(receipt(plan)), nl=False)
        click.echo(f"plan      {plan.paths.plan_file}\nidentity  {plan.planIdentity}")
    return run_plan(Path(plan.paths.plan_file), confirm=confirm, yes=yes, operator=operator)


def _stored(plan_out: Path, confirm: str | None) -> Path | None:
    """The newest stored plan of the confirmed identity: the same command given again goes on with the same run."""
    directory = plan_out if plan_out.is_dir() else plan_out.parent
    if confirm is None or not directory.is_dir():
        return None
    files = sorted(directory.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files:
        try:
            if read_plan(path).planIdentity == confirm:
                return path
        except InputWrong:
            continue
    return None


def main() -> None:
    """The entry point of harness/run_batch.py."""
    cli.main(command=run_batch_command)
