"""`python -m windtunnel.gateway <start-file>`: the gateway process. Credentials come in its environment."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

from windtunnel.errors import WindtunnelError
from windtunnel.gateway.interface import StartFile
from windtunnel.gateway.server import serve
from windtunnel.store.files import read_json

__all__: list[str] = []


def _main(arguments: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if len(arguments) != 1:
        logging.error("usage: python -m windtunnel.gateway START_FILE")
        return 1
    try:
        asyncio.run(serve(read_json(Path(arguments[0]), StartFile), os.environ))
    except (WindtunnelError, OSError) as error:
        logging.error("the gateway cannot serve: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
