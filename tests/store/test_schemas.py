from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from run_builders import SHA, a_manifest, a_plan, a_result, some_usage
from windtunnel.cli.schemas import all_documents
from windtunnel.domain.digest import to_json
from windtunnel.domain.event_fields import FIELDS
from windtunnel.domain.events import Event, Kind
from windtunnel.domain.fold import fold
from windtunnel.domain.manifest import Confirmation
from windtunnel.domain.outcome import Outcome, Reason
from windtunnel.domain.result import AttemptRecord
from windtunnel.domain.wire import CallEnded, CallRefused, CallStarted, Tokens
from windtunnel.gateway.interface import GatewayFacts
from windtunnel.host.processes import current
from windtunnel.store.event_log import event_line
from windtunnel.store.owner import Owner
from windtunnel.store.results import Claim
from windtunnel.subjects.driver_spec import DriverSpec, ExitRecord

DOCS = Path(__file__).parents[2] / "docs" / "schemas"
TS = "2026-12-01T00:00:00.000Z"

INSTANCES: list[tuple[str, Any]] = [
    ("plan", a_plan()),
    ("manifest", a_manifest()),
    ("status", fold(a_manifest(), ())),
    ("result", a_result()),
    ("attempt", AttemptRecord(attempt=1, run_id="r1", cell="c", outcome=Outcome.of(Reason.GRADED), started_at=TS)),
    ("attempt", AttemptRecord(attempt=1, run_id="r1", cell="c", outcome=None, started_at=TS, usage=some_usage())),
    ("confirmation", Confirmation(identity=SHA, time=TS, operator="o", how="flag")),
    ("claim", Claim(run_id="r1", cell="c", process=current(), ts=TS)),
    ("owner-lock", Owner(run_id="r1", host="h", process=current(), taken_at=TS)),
    (
        "wire-record",
        CallStarted(call="1", ts=TS, attempt="a", route="r", role="executor", dialect="d", path="/", model_asked=None),
    ),
    (
        "wire-record",
        CallEnded(
            call="1", ts=TS, role="executor", status=200, ended_by="complete", duration_ms=1.5, tokens=Tokens(input=1)
        ),
    ),
    ("wire-record", CallRefused(ts=TS, attempt="a", route="r", role="x", reason="undeclared_role")),
    (
        "gateway",
        GatewayFacts(run_id="r1", plan_identity=SHA, pid=1, start_time=1.0, boot_id="b", control_socket="/s"),
    ),
    ("exit-record", ExitRecord(attempt="a", started=True, exit=0)),
    ("driver-spec", DriverSpec(attempt="a", box="/box", inputs="/in")),
]
EVENT_FIELDS: dict[Kind, dict[str, Any]] = {
    Kind.RUN_STARTED: {"pid": 1, "start_time": 1.5, "host": "h", "boot_id": "b", "torn_bytes": 0},
    Kind.RUN_PAUSED: {"reason": "stop", "detail": "SIGINT"},
    Kind.RUN_COMPLETED: {},
    Kind.CELL_FINISHED: {
        "cell": "c",
        "status": "valid",
        "reason": "graded",
        "reward": 1,
        "attempts": 1,
        "usage": some_usage(),
        "cost_usd": None,
        "result_path": "/r",
        "result_sha256": SHA,
    },
    Kind.ATTEMPT_FINISHED: {
        "cell": "c",
        "attempt": 1,
        "status": "invalid",
        "reason": "unknown",
        "detail": "",
        "retry": True,
    },
    Kind.SMOKE_FAILED: {"config": "a", "cell": "c", "verdict_path": "/v", "failed": ["x"]},
    Kind.QUOTA_WAIT: {"provider": "p", "windows": [{"used": None}], "waiting_until": TS},
}


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DOCS / f"{name}.schema.json").read_bytes())
    return document


def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(load(name))


def test_docs_hold_exactly_what_the_code_says() -> None:
    """When this fails: run scripts/schemas."""
    there = {path.name: path.read_bytes() for path in DOCS.glob("*.json")}
    assert there == all_documents()


@pytest.mark.parametrize("name", sorted(path.name.removesuffix(".schema.json") for path in DOCS.glob("*.json")))
def test_every_schema_is_one(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(load(name))


@pytest.mark.parametrize(("name", "value"), INSTANCES, ids=lambda value: value if isinstance(value, str) else "")
def test_what_we_write_is_valid_and_nothing_more_is(name: str, value: Any) -> None:
    written = json.loads(to_json(value))
    check = validator(name)
    check.validate(written)

    assert not check.is_valid(written | {"surprise": 1})
    if name not in {"exit-record", "wire-record"}:
        for key in written:
            assert not check.is_valid({k: v for k, v in written.items() if k != key}), key


@pytest.mark.parametrize("kind", list(EVENT_FIELDS))
def test_events_are_valid_flat_lines(kind: Kind) -> None:
    line = json.loads(event_line(Event(seq=1, ts=TS, event=kind, run_id="r1", fields=EVENT_FIELDS[kind])))
    check = validator("event")
    check.validate(line)

    for wrong in (line | {"surprise": 1}, line | {"seq": 0}, line | {"ts": "2026-12-01"}, line | {"event": "new"}):
        assert not check.is_valid(wrong)
    assert not check.is_valid({k: v for k, v in line.items() if k != "run_id"})


def test_every_kind_of_event_has_its_fields_and_no_two_kinds_are_confused() -> None:
    assert set(FIELDS) == set(Kind)
    kinds = [entry["properties"]["event"]["const"] for entry in load("event")["oneOf"]]
    assert sorted(kinds) == sorted(map(str, Kind))
