"""The shelf of plans: what a reader and a writer refuse, and the flag they name."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from builders import a_plan
from windtunnel.errors import FileDamaged, InputWrong
from windtunnel.store.plans import read_plan, write_plan


@pytest.mark.parametrize("document", [{"schemaVersion": 2}, {"schemaVersion": 2, "run_id": 7}])
def test_a_newer_schema_is_told_by_number_before_its_shape(tmp_path: Path, document: object) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(document))

    with pytest.raises(FileDamaged, match=r"plan schema 2 \(made by a newer windtunnel\), this program reads 1"):
        read_plan(path)


@pytest.mark.parametrize("data", ["[]", "{}", '{"schemaVersion": "2"}', '{"schemaVersion": true}', "{"])
def test_what_names_no_schema_is_not_a_plan(tmp_path: Path, data: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(data)

    with pytest.raises(FileDamaged, match="not a plan"):
        read_plan(path)


@pytest.mark.parametrize(
    ("blocked", "flag"), [("plan_file", "--plan-out"), ("receipt_file", "--receipt-out"), ("both", "--plan-out")]
)
def test_a_place_that_cannot_be_written_is_told_with_its_flag(tmp_path: Path, blocked: str, flag: str) -> None:
    (tmp_path / "file").write_text("")
    names = {"plan_file": "r1.json", "receipt_file": "r1.txt"}
    places = {
        field: str(tmp_path / ("file" if blocked in {field, "both"} else "plans") / name)
        for field, name in names.items()
    }
    plan = a_plan(tmp_path)
    plan = msgspec.structs.replace(plan, paths=msgspec.structs.replace(plan.paths, **places))

    with pytest.raises(InputWrong, match=rf"{tmp_path}/file.* cannot be written: .*Choose another {flag}\.$"):
        write_plan(plan, "receipt")
