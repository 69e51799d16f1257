"""The command line: groups the commands, turns every refusal into one line and its exit code."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from windtunnel import __version__
from windtunnel.errors import WindtunnelError

__all__ = ["main", "windtunnel"]

# Loaded only when called, so that `--help` stays fast: command -> (module, attribute, short help).
_COMMANDS = {
    "plan": ("windtunnel.cli.plan", "plan_command", "Resolve what will run; calls no model, starts nothing."),
    "show": ("windtunnel.cli.status", "show_command", "Print the receipt of a plan or run."),
    "run": ("windtunnel.cli.run", "run_command", "Run a confirmed plan, or go on with it."),
    "verify": ("windtunnel.cli.verify", "verify_command", "Recompute every claim of a run from its evidence."),
    "status": ("windtunnel.cli.status", "status_command", "Where a run stands."),
    "list": ("windtunnel.cli.status", "list_command", "The runs below a state root."),
    "smoke": ("windtunnel.cli.verify", "smoke_group", "Judge smoke contracts on stored evidence."),
    "tasks": ("windtunnel.cli.tasks", "tasks_group", "List tasks and run their controls."),
    "subject": ("windtunnel.cli.subject", "subject_group", "Build and list the bundles of agent products."),
    "replay": ("windtunnel.cli.replay", "replay_command", "Serve the deterministic model provider."),
    "demo": ("windtunnel.cli.demo", "demo_command", "The whole loop on bundled tasks, without keys or Docker."),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="windtunnel")
def windtunnel() -> None:
    """Launch, supervise, verify and compare benchmarks of coding agents.

    Hold everything constant, change one thing, believe the difference:
    plan -> show -> run --confirm -> status -> verify.
    """


def main(arguments: list[str] | None = None, command: click.Command = windtunnel) -> None:
    """Run a command line and exit. Exit codes: 0 done, 1 wrong input, 2 not verified, 3 not confirmed, 4 stopped,
    75 paused, 130 interrupted, 143 terminated; the library's own codes are mapped to these."""
    try:
        code = command.main(args=arguments, prog_name=command.name, standalone_mode=False)
    except WindtunnelError as error:
        click.echo(f"windtunnel: {error.message}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = 1
    except click.exceptions.Exit as error:
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("windtunnel: interrupted", err=True)
        code = 130
    except BrokenPipeError:
        code = 1
    except OSError as error:
        click.echo(
            f"windtunnel: {error.filename or 'system'}: {error.strerror or error}; mend it and try again", err=True
        )
        code = 4
    sys.exit(code if isinstance(code, int) else 0)
