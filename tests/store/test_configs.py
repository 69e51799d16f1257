"""Configs on disk: files, leaves, links, and what nothing reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from builders import REPLAY_SCRIPT, write_files
from windtunnel.domain.config import Config
from windtunnel.domain.digest import sha256_bytes
from windtunnel.errors import InputWrong, NotBuiltYet
from windtunnel.store.configs import find_config, list_leaves, read_config


def read(directory: Path, model: str | None = "acme/m-1", **changes: Any) -> Config:
    return read_config(directory, **({"name": "c", "model": model, "thinking": "high"} | changes))


def paths(config: Config) -> list[str]:
    return [file.path for file in config.files]


def test_every_file_that_counts_is_listed_with_hash_size_and_exec_bit(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "system_preamble.md": "x",
            "bin/tool": "#!/bin/sh\n",
            "skills/s/SKILL.md": "s",
            "smoke.json": "{}",
            "env": "A=1",
        },
    )
    (tmp_path / "bin/tool").chmod(0o755)

    config = read(tmp_path)

    assert paths(config) == ["bin/tool", "env", "skills/s/SKILL.md", "smoke.json", "system_preamble.md"]
    tool, _, _, smoke, preamble = config.files
    assert (tool.executable, preamble.executable) == (True, False)
    assert (preamble.sha256, preamble.bytes) == (sha256_bytes(b"x"), 1)
    assert (smoke.reaches_subject, preamble.reaches_subject) == (False, True)
    assert (config.env, config.contract, config.unused, config.leaf) == ({"A": "1"}, "smoke.json", (), None)


def test_entries_that_nothing_reads_are_named(tmp_path: Path) -> None:
    write_files(tmp_path, {"notes.txt": "x", "old/a": "x", "m-1/high/extra.md": "x", "env": ""})

    assert set(read(tmp_path).unused) == {"notes.txt", "old/", "m-1/high/extra.md"}


@pytest.mark.parametrize("name", ["models.json", "settings.json", "advisor.json"])
def test_a_leaf_file_at_the_root_is_refused_with_the_place_where_it_belongs(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, {name: "{}", "m-1/high/settings.json": "{}"})

    with pytest.raises(InputWrong, match=rf"/{name}: .* {tmp_path.name}/<model-leaf>/<thinking>/{name}"):
        read(tmp_path)


def test_a_skill_with_a_contract_of_its_own_reaches_the_subject(tmp_path: Path) -> None:
    write_files(tmp_path, {"skills/s/smoke.json": "{}", "skills/s/pi-flags": "--model"})

    config = read(tmp_path)

    assert all(file.reaches_subject for file in config.files)
    assert config.contract is None


def test_the_one_fitting_leaf_is_taken_and_wins(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "pi-flags": "--no-skills",
            "smoke.json": "{}",
            "m-1/high/pi-flags": "--verbose",
            "m-1/high/smoke.json": "{}",
            "m-1/high/models.json": '{"providers": {"acme": {"baseUrl": "https://x.test"}}}',
            "m-1/low/models.json": "broken, but not chosen",
            "m-2/high/settings.json": "broken, but not chosen",
        },
    )

    config = read(tmp_path)

    assert config.leaf == "m-1/high"
    assert config.contract == "m-1/high/smoke.json"
    assert config.overlaid == ("pi-flags", "smoke.json")
    assert config.providers["acme"].base_url == "https://x.test"
    assert "m-1/low/models.json" not in paths(config)


def test_the_leaf_of_a_nested_model_id_is_its_last_part(tmp_path: Path) -> None:
    write_files(tmp_path, {"v4/high/settings.json": "{}"})

    assert read(tmp_path, "openrouter/deepseek/v4").leaf == "v4/high"


def test_several_fitting_leaves_are_listed_with_the_flag(tmp_path: Path) -> None:
    write_files(tmp_path, {"m-1/high/settings.json": "{}", "m-1+advisor/high/settings.json": "{}"})

    with pytest.raises(InputWrong, match=r"2 leaves fit m-1 at high: m-1, m-1\+advisor.*--leaf c=m-1"):
        read(tmp_path)
    assert read(tmp_path, leaf="m-1+advisor").leaf == "m-1+advisor/high"
    assert read(tmp_path, leaf="m-1/high").leaf == "m-1/high"


def test_a_named_leaf_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {"m-2/high/settings.json": "{}"})

    with pytest.raises(InputWrong, match=r"--leaf c=m-2.*It has: m-2/high"):
        read(tmp_path, leaf="m-2")


def test_a_config_with_leaves_and_none_that_fits_lists_them(tmp_path: Path) -> None:
    write_files(tmp_path, {"m-1/low/settings.json": "{}", "m-10/high/settings.json": "{}"})

    assert list_leaves(tmp_path) == ["m-1/low", "m-10/high"]
    with pytest.raises(InputWrong, match=r"no leaf for m-1 at high. It has: m-1/low, m-10/high"):
        read(tmp_path)


def test_links_inside_the_config_are_followed(tmp_path: Path) -> None:
    write_files(tmp_path, {"system_preamble.md": "x", "skills/s/SKILL.md": "s"})
    (tmp_path / "orchestration.md").symlink_to("system_preamble.md")
    (tmp_path / "skills/t").symlink_to("s")

    config = read(tmp_path)

    assert paths(config) == ["orchestration.md", "skills/s/SKILL.md", "skills/t/SKILL.md", "system_preamble.md"]
    assert config.files[0].sha256 == config.files[3].sha256


@pytest.mark.parametrize("place", ["env", "skills/s", "bin/x", "m-1/high/models.json"])
@pytest.mark.parametrize("kind", ["out", "dangling"])
def test_links_that_lead_out_or_nowhere_are_refused(tmp_path: Path, place: str, kind: str) -> None:
    secret = write_files(tmp_path / "elsewhere", {"secret": "{}"}) / "secret"
    config = write_files(tmp_path / "c", {"system_preamble.md": "x"})
    (config / place).parent.mkdir(parents=True, exist_ok=True)
    (config / place).symlink_to(secret if kind == "out" else "nowhere")

    with pytest.raises(InputWrong, match=rf"{place}: .*link"):
        read(config)


def test_a_link_that_leads_in_a_circle_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {"skills/s/SKILL.md": "x"})
    (tmp_path / "skills/s/again").symlink_to("..")

    with pytest.raises(InputWrong, match="back to a folder above"):
        read(tmp_path)


def test_a_special_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "env")

    with pytest.raises(InputWrong, match="env: must be a regular file"):
        read(tmp_path)


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "env").write_bytes(b"A=\xff")

    with pytest.raises(InputWrong, match=r"env: not UTF-8 text \(byte 2\)"):
        read(tmp_path)


def test_a_mistake_in_the_contract_is_found_at_planning(tmp_path: Path) -> None:
    write_files(tmp_path, {"smoke.json": '{"requireFile": ["x"]}'})

    with pytest.raises(InputWrong, match=r"smoke\.json.*requireFile"):
        read(tmp_path)


def test_flags_are_checked_in_root_and_leaf(tmp_path: Path) -> None:
    write_files(tmp_path, {"m-1/high/pi-flags": "--model\nx"})

    with pytest.raises(InputWrong, match=r"m-1/high/pi-flags: --model is set by the harness"):
        read(tmp_path)


def test_the_script_of_a_replay_route_is_hashed_and_not_given_to_the_subject(tmp_path: Path) -> None:
    toml = '[routes.replay]\nkind = "replay"\nscript = "scripts/r.json"\n'
    write_files(tmp_path, {"config.toml": toml, "scripts/r.json": REPLAY_SCRIPT})

    config = read(tmp_path)

    assert config.scripts == {"scripts/r.json": sha256_bytes(REPLAY_SCRIPT.encode())}
    assert [f.reaches_subject for f in config.files] == [False, False]


def test_a_broken_script_is_found_at_planning(tmp_path: Path) -> None:
    write_files(tmp_path, {"config.toml": '[routes.r]\nkind = "replay"\nscript = "r.json"\n', "r.json": '{"turn": []}'})

    with pytest.raises(InputWrong, match=r"r\.json: not a replay script.*turn"):
        read(tmp_path)


@pytest.mark.parametrize("script", ["missing.json", "../x.json", "/etc/passwd"])
def test_a_script_outside_the_config_is_refused(tmp_path: Path, script: str) -> None:
    write_files(tmp_path, {"x.json": "{}", "c/config.toml": f'[routes.r]\nkind = "replay"\nscript = "{script}"\n'})

    with pytest.raises(InputWrong, match="no replay script"):
        read(tmp_path / "c")


def test_another_role_in_config_toml_waits_for_its_part(tmp_path: Path) -> None:
    write_files(tmp_path, {"config.toml": "[[roles]]\nname = 'advisor'\n"})

    with pytest.raises(NotBuiltYet, match=r"role 'advisor'.*config\.toml"):
        read(tmp_path)


def test_configs_are_found_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, {"configs/a/env": "", "other/b/env": ""})
    monkeypatch.chdir(tmp_path)

    assert find_config("a", tmp_path / "configs") == tmp_path / "configs/a"
    assert find_config("./other/b", tmp_path / "configs") == tmp_path / "other/b"
    assert find_config("./other/b/../b/", tmp_path / "configs").name == "b"


@pytest.mark.parametrize("name", ["missing", "", "../configs/missing"])
def test_an_unknown_config_lists_those_there_are(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, {"configs/a/env": "", "configs/b/env": "", "configs/.hidden/env": ""})

    with pytest.raises(InputWrong, match=r"no directory .*: a, b$"):
        find_config(name, tmp_path / "configs")


@pytest.mark.parametrize("name", ["_runs", ".x", "a:b", "x" * 130, "a\u202eb"])
def test_a_config_whose_name_cannot_be_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, {f"configs/{name}/env": ""})

    with pytest.raises(InputWrong, match="cannot be a folder"):
        find_config(name, tmp_path / "configs")
