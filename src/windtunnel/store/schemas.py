"""JSON Schemas made from the structs that the files are written from, so that they cannot drift from the code.

Strict: a property that the struct does not have is refused; in a file that we write, every property is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.domain.digest import to_json
from windtunnel.domain.event_fields import FIELDS
from windtunnel.domain.manifest import Confirmation, Manifest
from windtunnel.domain.plan import Plan
from windtunnel.domain.result import AttemptRecord, Result
from windtunnel.domain.status import Status
from windtunnel.domain.verification import VerifyReport
from windtunnel.domain.wire import Record
from windtunnel.store.files import write_atomic
from windtunnel.store.owner import Owner
from windtunnel.store.results import Claim

__all__ = ["STORED", "documents", "event_schema", "schema", "write_documents"]

# File name without `.schema.json`: what it describes.
STORED: dict[str, Any] = {
    "plan": Plan,
    "manifest": Manifest,
    "status": Status,
    "result": Result,
    "attempt": AttemptRecord,
    "claim": Claim,
    "confirmation": Confirmation,
    "owner-lock": Owner,
    "verify": VerifyReport,
    "wire-record": Record,
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(name: str, type_: Any, *, complete: bool = True) -> dict[str, Any]:
    """The schema of one file or line. `complete` false: its writer leaves out what has a default."""
    body = _strict(msgspec.json.schema(type_), complete)
    return {"$schema": _DIALECT, "title": name, **body}


def _strict(value: Any, complete: bool) -> Any:
    if isinstance(value, list):
        return [_strict(item, complete) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: _strict(item, complete) for key, item in value.items()}
    if value.get("type") == "object" and isinstance(value.get("properties"), dict):
        made["additionalProperties"] = False
        if complete:
            made["required"] = sorted(value["properties"])
    return made


def event_schema() -> dict[str, Any]:
    """A line of events.ndjson: the four fields of every event and, flat beside them, the ones of its kind."""
    common = {
        "seq": {"type": "integer", "minimum": 1},
        "ts": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"},
        "run_id": {"type": "string"},
    }
    definitions: dict[str, Any] = {}
    kinds = []
    for kind, type_ in FIELDS.items():
        made = schema(str(kind), type_, complete=False)
        definitions |= made.pop("$defs", {})
        own = definitions.pop(type_.__name__)
        kinds.append(
            {
                "type": "object",
                "title": str(kind),
                "properties": {**common, "event": {"const": str(kind)}, **own["properties"]},
                "required": ["seq", "ts", "event", "run_id", *own.get("required", [])],
                "additionalProperties": False,
            }
        )
    return {"$schema": _DIALECT, "title": "event", "oneOf": kinds, "$defs": dict(sorted(definitions.items()))}


def documents(more: Mapping[str, Any] | None = None) -> dict[str, bytes]:
    """File name to content, for docs/schemas. `more`: name to type (full) or to a finished schema."""
    made = {name: schema(name, type_) for name, type_ in STORED.items()}
    made["event"] = event_schema()
    for name, value in (more or {}).items():
        made[name] = value if isinstance(value, dict) else schema(name, value)
    return {f"{name}.schema.json": to_json(made[name]) for name in sorted(made)}


def write_documents(directory: Path, files: Mapping[str, bytes]) -> None:
    """Make a directory hold exactly these schemas."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.glob("*.schema.json"):
        if path.name not in files:
            path.unlink()
    for name, data in files.items():
        write_atomic(directory / name, data, durable=False)
