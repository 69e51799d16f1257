"""`scripts/schemas`: write docs/schemas from the code."""

from __future__ import annotations

from pathlib import Path

import click

from windtunnel.domain.contract import Verdict
from windtunnel.domain.replay import Script
from windtunnel.domain.verification import VerifyReport
from windtunnel.gateway.interface import GatewayFacts, SecretSearch
from windtunnel.store.run_seal import RunSeal
from windtunnel.store.schemas import documents, schema, write_documents
from windtunnel.subjects.driver_spec import DriverSpec, ExitRecord

__all__ = ["all_documents", "schemas_command"]


def all_documents() -> dict[str, bytes]:
    """Every schema of the product: file name to content."""
    return documents(
        {
            "gateway": GatewayFacts,
            "driver-spec": DriverSpec,
            "smoke-verdict": Verdict,
            "verify": VerifyReport,
            "run-seal": RunSeal,
            "secret-search": SecretSearch,
            "replay-script": Script,
            # The driver is JavaScript and leaves out what it has nothing to say about.
            "exit-record": schema("exit-record", ExitRecord, complete=False),
        }
    )


@click.command("schemas")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), default=Path("docs/schemas"))
def schemas_command(directory: Path) -> None:
    """Write the JSON Schemas of all files below DIRECTORY."""
    write_documents(directory, all_documents())
    click.echo(f"schemas in {directory}")
