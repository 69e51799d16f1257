"""`windtunnel replay --script FILE`: serve the deterministic model provider for dry runs and tests."""

from __future__ import annotations

from pathlib import Path

import click

from windtunnel.errors import InputWrong
from windtunnel.gateway.replay import ReplayState, run_replay

__all__ = ["replay_command"]


@click.command("replay")
@click.option("--script", required=True, type=click.Path(path_type=Path), help="The conversations to replay (JSON).")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Loopback port; 0: any free one."
)
@click.option(
    "--log", default=None, type=click.Path(path_type=Path), help="The provider's own count of calls (NDJSON)."
)
@click.option("--state", default=None, type=click.Path(path_type=Path), help="Where to write port, pid and base URL.")
@click.option("--require-key-env", default=None, metavar="NAME", help="Refuse calls without the key in this variable.")
def replay_command(script: Path, port: int, log: Path | None, state: Path | None, require_key_env: str | None) -> None:
    """Answer chat completions from a script, always the same way, with usage, delays and faults."""
    try:
        run_replay(script, port=port, log=log, state=state, require_key_env=require_key_env, ready=_ready)
    except OSError as error:
        raise InputWrong(f"replay: {error.filename or f'port {port}'}: {error.strerror}; choose another one") from error


def _ready(state: ReplayState) -> None:
    click.echo(f"serving {state.base_url} (pid {state.pid}); end it with Ctrl-C")
