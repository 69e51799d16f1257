"""Keep request bodies of an attempt (what a role was really told): the first ones, all, the failed ones, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from windtunnel.domain.digest import to_json
from windtunnel.errors import InputWrong
from windtunnel.gateway.secrets import Secrets
from windtunnel.store.files import write_atomic

__all__ = ["Capture"]

_LIMIT = 2 * 1024 * 1024


class Capture:
    """`rule`: `first:<n>` per role, `all`, `errors`, `none`. Raises InputWrong for anything else."""

    def __init__(self, rule: str, secrets: Secrets) -> None:
        word, _, number = rule.partition(":")
        if not (rule in ("all", "errors", "none") or (word == "first" and number.isdecimal())):
            raise InputWrong(f"capture {rule!r}: not one of first:<n>, all, errors, none")
        self._first = int(number) if word == "first" else None
        self._rule = word
        self._secrets = secrets

    def wants(self, number: int, *, failed: bool) -> bool:
        """Whether the body of a role's call (its number, from 1) is kept."""
        if self._first is not None:
            return number <= self._first
        return self._rule == "all" or (self._rule == "errors" and failed)

    def keep(self, directory: Path, role: str, number: int, body: dict[str, Any]) -> Path:
        """Write `<role>-<n>.request.json`: the body, redacted; a longer one as its size and its start."""
        directory.mkdir(parents=True, exist_ok=True)
        text = self._secrets.redact(msgspec.json.encode(body).decode())
        data = text.encode()
        if len(data) > _LIMIT:
            start = data[:_LIMIT].decode("utf-8", "ignore")
            data = to_json({"schemaVersion": 1, "truncated": True, "bytes": len(text.encode()), "start": start})
        path = directory / f"{role.replace('/', '_')}-{number}.request.json"
        write_atomic(path, data, durable=False)
        return path
