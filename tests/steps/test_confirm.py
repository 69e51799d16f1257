"""Confirmation: a person's yes to exactly one plan, and the config files it covers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_config, a_plan, a_role, write_files
from windtunnel.domain.digest import to_json
from windtunnel.domain.plan import Plan, plan_identity
from windtunnel.errors import Drifted, FileDamaged, InputWrong, NotConfirmed
from windtunnel.steps.confirm import check_inputs, copy_inputs, require_confirmation
from windtunnel.store.configs import describe_file
from windtunnel.store.plans import read_plan, write_plan

NOW = "2026-12-01T00:00:00.000Z"


def stored(root: Path, **changes: Any) -> tuple[Path, Plan]:
    plan = a_plan(root, **changes)
    write_plan(plan, "receipt\n")
    return Path(plan.paths.plan_file), plan


def confirmed(path: Path, **changes: Any) -> Any:
    values: dict[str, Any] = {"confirm": None, "yes": False, "ask": None, "operator": "kim", "now": NOW}
    return require_confirmation(path, **(values | changes))


def test_the_identity_confirms_and_is_recorded(tmp_path: Path) -> None:
    path, plan = stored(tmp_path)

    yes = confirmed(path, confirm=plan.planIdentity)

    assert (yes.identity, yes.time, yes.operator, yes.how) == (plan.planIdentity, NOW, "kim", "flag")


@pytest.mark.parametrize(
    "typed",
    ["", "sha256:", "yes", "a" * 64, "sha256:" + "a" * 63, "sha256:" + "A" * 64, "sha256:" + "a" * 64, "\x1b[2J"],
)
def test_anything_else_starts_nothing_and_prints_the_exact_command(tmp_path: Path, typed: str) -> None:
    path, plan = stored(tmp_path)

    with pytest.raises(NotConfirmed) as caught:
        confirmed(path, confirm=typed, yes=True)

    assert caught.value.exit_code == 3
    assert caught.value.message.endswith(f"windtunnel run {path} --confirm {plan.planIdentity}")
    assert "\x1b" not in caught.value.message


def test_without_a_terminal_and_without_a_yes_nothing_starts(tmp_path: Path) -> None:
    path, plan = stored(tmp_path)

    with pytest.raises(NotConfirmed, match=f"--confirm {plan.planIdentity}"):
        confirmed(path)


def test_a_terminal_is_shown_the_receipt_and_asked_for_eight_digits(tmp_path: Path) -> None:
    path, plan = stored(tmp_path)
    shown: list[str] = []

    def ask(receipt: str) -> str:
        shown.append(receipt)
        return f" {plan.planIdentity[7:15].upper()}\n"

    assert confirmed(path, ask=ask).how == "terminal"
    assert plan.planIdentity in shown[0]


@pytest.mark.parametrize("typed", ["", "y", "yes", "0" * 8, "sha256:0"])
def test_other_digits_start_nothing(tmp_path: Path, typed: str) -> None:
    path, _ = stored(tmp_path)

    with pytest.raises(NotConfirmed, match="first 8"):
        confirmed(path, ask=lambda _: typed)


def test_yes_is_enough_for_the_executor_alone_and_shows_the_receipt(tmp_path: Path) -> None:
    path, plan = stored(tmp_path)
    shown: list[str] = []

    assert confirmed(path, yes=True, show=shown.append).how == "yes"
    assert plan.planIdentity in shown[0]


def test_yes_is_never_enough_for_a_second_role(tmp_path: Path) -> None:
    config = a_config(roles=(a_role(), a_role(name="advisor")))
    path, plan = stored(tmp_path, configs=(config,))

    with pytest.raises(NotConfirmed, match="roles advisor"):
        confirmed(path, yes=True)
    assert confirmed(path, confirm=plan.planIdentity).how == "flag"


@pytest.mark.parametrize("key", ["workers", "memory_mb"])
def test_a_plan_that_was_edited_is_not_confirmed_by_its_old_identity(tmp_path: Path, key: str) -> None:
    path, plan = stored(tmp_path)
    document = json.loads(path.read_text())
    document["settings"][key] = 99
    path.write_text(json.dumps(document))

    with pytest.raises(NotConfirmed, match=r"was changed after it was written.*Plan again"):
        confirmed(path, confirm=plan.planIdentity)


def test_where_a_plan_lies_is_not_part_of_the_yes(tmp_path: Path) -> None:
    path, plan = stored(tmp_path)
    moved = msgspec.structs.replace(plan, run_id="r2", created_at="later")
    path.write_bytes(to_json(moved))

    assert confirmed(path, confirm=plan.planIdentity).identity == plan.planIdentity


def test_a_missing_plan_is_wrong_input_before_anything_else(tmp_path: Path) -> None:
    with pytest.raises(InputWrong, match=r"none\.json: no such plan file") as caught:
        confirmed(tmp_path / "none.json", confirm="nonsense")

    assert caught.value.exit_code == 1


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"schemaVersion": 1}', b'{"a": NaN}', b"[" * 90_000])
def test_a_file_that_is_no_plan_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(data)

    with pytest.raises(FileDamaged, match=r"p\.json: not a plan"):
        confirmed(path, confirm="sha256:" + "0" * 64)


def test_a_directory_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(InputWrong, match="cannot be read"):
        read_plan(tmp_path)


def test_a_plan_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path, plan = stored(tmp_path)
    path.write_bytes(to_json(msgspec.structs.replace(plan, schemaVersion=2)))

    with pytest.raises(FileDamaged, match="plan schema 2"):
        read_plan(path)


@given(cut=st.integers(0, 2000), byte=st.integers(0, 255))
def test_a_damaged_plan_never_confirms_something_else(
    tmp_path_factory: pytest.TempPathFactory, cut: int, byte: int
) -> None:
    path, plan = stored(tmp_path_factory.mktemp("p"))
    data = bytearray(path.read_bytes())
    data[cut % len(data)] = byte
    path.write_bytes(bytes(data))

    try:
        changed = read_plan(path)
    except InputWrong:
        return
    if plan_identity(changed) != plan.planIdentity:
        with pytest.raises(NotConfirmed):
            confirmed(path, confirm=plan.planIdentity)


def test_a_plan_file_is_not_overwritten_by_another_plan(tmp_path: Path) -> None:
    path, plan = stored(tmp_path)
    before = path.read_bytes()

    with pytest.raises(InputWrong, match=f"holds another plan.*{plan.planIdentity}.*--run-id"):
        stored(tmp_path, model="acme/model-2")

    assert path.read_bytes() == before


def test_the_same_plan_may_be_written_again(tmp_path: Path) -> None:
    path, _ = stored(tmp_path)

    assert stored(tmp_path, created_at="later")[0] == path


def test_a_foreign_file_under_the_plan_name_is_kept(tmp_path: Path) -> None:
    write_files(tmp_path, {"plans/r1.json": "mine"})

    with pytest.raises(InputWrong, match="is not a plan"):
        stored(tmp_path)


def on_disk(root: Path) -> Plan:
    directory = write_files(root / "configs/a", {"system_preamble.md": "x", "bin/tool": "#!/bin/sh\n"})
    (directory / "bin/tool").chmod(0o755)
    files = tuple(describe_file(directory, path) for path in ("bin/tool", "system_preamble.md"))
    return a_plan(root, configs=(a_config(files=files, directory=str(directory)),))


def test_files_as_planned_are_copied_into_the_run(tmp_path: Path) -> None:
    plan = on_disk(tmp_path)

    check_inputs(plan)
    copy_inputs(plan, tmp_path / "inputs")

    assert (tmp_path / "inputs/a/system_preamble.md").read_text() == "x"
    assert (tmp_path / "inputs/a/bin/tool").stat().st_mode & 0o777 == 0o755


def test_an_edited_file_is_drift_with_both_hashes(tmp_path: Path) -> None:
    plan = on_disk(tmp_path)
    path = tmp_path / "configs/a/system_preamble.md"
    path.write_text("y")

    for step in (check_inputs, lambda plan: copy_inputs(plan, tmp_path / "inputs")):
        with pytest.raises(Drifted) as caught:
            step(plan)
        assert caught.value.exit_code == 4
        assert caught.value.planned == plan.configs[0].files[1].sha256
        assert caught.value.now == describe_file(path.parent, path.name).sha256


def test_a_removed_file_and_a_changed_exec_bit_are_drift(tmp_path: Path) -> None:
    plan = on_disk(tmp_path)
    (tmp_path / "configs/a/bin/tool").chmod(0o644)
    with pytest.raises(Drifted, match=r"bin/tool.*\(executable\)"):
        check_inputs(plan)
    (tmp_path / "configs/a/bin/tool").unlink()

    with pytest.raises(Drifted, match="now missing"):
        check_inputs(plan)
    with pytest.raises(Drifted, match="now missing"):
        copy_inputs(plan, tmp_path / "inputs")


def test_a_file_that_became_a_link_out_is_drift_or_the_same_bytes(tmp_path: Path) -> None:
    plan = on_disk(tmp_path)
    path = tmp_path / "configs/a/system_preamble.md"
    path.unlink()
    path.symlink_to(write_files(tmp_path, {"other": "z"}) / "other")

    with pytest.raises(Drifted, match=r"system_preamble\.md"):
        check_inputs(plan)
