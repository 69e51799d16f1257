"""`windtunnel replay --script FILE`: serve the deterministic model provider for dry runs and tests."""

from __future__ import annotations

from pathlib import Path

import click

from windtunnel.gateway.replay import run_replay

__all__ = ["replay_command"]


@click.command("replay")
@click.option("--script", required=True, type=click.Path(path_type=Path), help="The conversations to replay (JSON).")
@click.option("--port", default=0, show_default=True, help="Loopback port; 0: any free one.")
@click.option(
    "--log", default=None, type=click.Path(path_type=Path), help="The provider's own count of calls (NDJSON)."
)
@click.option("--state", default=None, type=click.Path(path_type=Path), help="Where to write port, pid and base URL.")
@click.option("--require-key-env", default=None, metavar="NAME", help="Refuse calls without the key in this variable.")
def replay_command(script: Path, port: int, log: Path | None, state: Path | None, require_key_env: str | None) -> None:
    """Answer chat completions from a script, always the same way, with usage, delays and faults."""
    run_replay(script, port=port, log=log, state=state, require_key_env=require_key_env)
