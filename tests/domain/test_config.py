"""What the files of a config mean, and which are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.domain.config import check_flags, parse_config_toml, parse_env, parse_json_object, parse_models
from windtunnel.domain.secret_shapes import looks_secret, variable_of
from windtunnel.errors import InputWrong, NotBuiltYet

SECRETS = [
    "sk-abcdefghijklmnop",
    "sk-ant-api03-XyZ",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_11ABCDEFG",
    "AKIAIOSFODNN7EXAMPLE",
    "Bearer abc",
    "eyJhbGciOi.eyJzdWIiOiIx.sig",
    "-----BEGIN PRIVATE KEY-----",
    "https://user:hunter2@host/x",
    "Zk3u8QwL0pR7sT2vX9yB4nM6cD1eF5gH",
]


@pytest.mark.parametrize("value", SECRETS)
def test_a_value_that_looks_like_a_secret_is_refused_and_not_shown(value: str) -> None:
    with pytest.raises(InputWrong, match="c/env:2: SETTING looks like a secret") as caught:
        parse_env(f"# note\nSETTING={value}\n", "c/env")

    assert value not in caught.value.message


@pytest.mark.parametrize("name", ["API_KEY", "GITHUB_TOKEN", "CLIENT_SECRET", "DB_PASSWORD", "my_key"])
def test_a_name_that_says_secret_is_refused(name: str) -> None:
    with pytest.raises(InputWrong, match=name) as caught:
        parse_env(f"{name}=canary", "env")

    assert "canary" not in caught.value.message


def test_plain_settings_are_read() -> None:
    text = (
        "# comment\n\nPI_CACHE_RETENTION=long\nPATHS=/usr/lib/node_modules/@scope/Package-Name/dist2/x:/opt\nEMPTY=\n"
    )

    assert parse_env(text, "env") == {
        "PI_CACHE_RETENTION": "long",
        "PATHS": "/usr/lib/node_modules/@scope/Package-Name/dist2/x:/opt",
        "EMPTY": "",
    }


@pytest.mark.parametrize("line", ["no equals", "1X=2", "A B=2", "=x", "WINDTUNNEL_BOX=/x"])
def test_a_line_that_sets_nothing_of_ours_is_refused(line: str) -> None:
    with pytest.raises(InputWrong, match="env:1"):
        parse_env(line, "env")


def test_a_variable_set_twice_is_refused() -> None:
    with pytest.raises(InputWrong, match="A is set twice"):
        parse_env("A=1\nA=2", "env")


@given(text=st.text())
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        assert all(isinstance(value, str) for value in parse_env(text, "env").values())
    except InputWrong as error:
        assert error.message.startswith("env:")


@pytest.mark.parametrize(
    "flag",
    [
        "-p",
        "--print",
        "--mode",
        "--mode=rpc",
        "--model",
        "--thinking=high",
        "--session-dir",
        "--append-system-prompt",
        "--offline",
    ],
)
def test_flags_of_the_harness_are_refused_by_name(flag: str) -> None:
    with pytest.raises(InputWrong, match=f"pi-flags: {flag.split('=')[0]} is set by the harness"):
        check_flags(f"# mine\n--verbose\n{flag}\n", "pi-flags")


@pytest.mark.parametrize("flag", ["-e", "--extension", "--extension=./x.ts"])
def test_flags_that_load_extensions_wait_for_their_part(flag: str) -> None:
    with pytest.raises(NotBuiltYet, match="no role covers"):
        check_flags(flag, "pi-flags")


def test_a_key_in_the_flags_is_refused_and_not_shown() -> None:
    with pytest.raises(InputWrong, match="carries a secret") as caught:
        check_flags("--api-key=canary-value", "pi-flags")

    assert "canary" not in caught.value.message


def test_other_flags_pass() -> None:
    check_flags("--tools\nread,bash\n# --model is a comment\n", "pi-flags")


def test_config_toml_is_read() -> None:
    parsed = parse_config_toml(
        """description = "short prompt"
subject = "pi@1.6.0"
varies = ["skills"]
[routes.acme]
base_url = "https://llm.example.test/v1"
credential = "ACME_API_KEY"
[[roles]]
name = "executor"
max_calls = 40
billing = "subscription"
""",
        "config.toml",
    )

    assert parsed.routes["acme"].credential == "ACME_API_KEY"
    assert (parsed.roles[0].max_calls, parsed.roles[0].billing, parsed.varies) == (40, "subscription", ("skills",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("descripton = 'x'", "unknown key 'descripton'"),
        ("[routes.acme]\nurl = 'x'", r"\[routes.acme\].*`url`"),
        ("[routes.acme]\nkind = 'ftp'", "kind"),
        ("[[roles]]\nname = 'executor'\nmax_cost = 1", "`max_cost`"),
        ("[[roles]]\nname = 'executor'\nmax_calls = 0", "max_calls = 0"),
        ("[[roles]]\nname = 'executor'\n[[roles]]\nname = 'executor'", "2 times"),
        ("varies = 'skills'", "varies"),
        ("routes = 3", "routes"),
        ("description = ", "not valid TOML"),
    ],
)
def test_a_mistake_in_config_toml_is_named(text: str, says: str) -> None:
    with pytest.raises(InputWrong, match=f"c/config.toml.*{says}"):
        parse_config_toml(text, "c/config.toml")


@pytest.mark.parametrize("role", ["advisor", "observer", "subagent"])
def test_another_role_than_the_executor_waits_for_its_part(role: str) -> None:
    with pytest.raises(NotBuiltYet, match=f"role '{role}'"):
        parse_config_toml(f"[[roles]]\nname = '{role}'", "config.toml")


def models(**provider: object) -> bytes:
    return json.dumps({"providers": {"acme": provider}}).encode()


def test_providers_of_models_json_are_read() -> None:
    read = parse_models(models(baseUrl="https://x.test/v1", apiKey="$ACME_API_KEY", compat={"a": 1}), "m")

    assert (read["acme"].base_url, read["acme"].api_key) == ("https://x.test/v1", "$ACME_API_KEY")


@pytest.mark.parametrize(
    "provider",
    [
        {"apiKey": "canary-literal"},
        {"apiKey": "$A$B-canary"},
        {"headers": {"Authorization": "canary"}},
        {"headers": {"X-Api-Key": "canary"}},
        {"models": [{"id": "m", "headers": {"x": "sk-canary-abcdefgh"}}]},
    ],
)
def test_a_key_in_models_json_is_refused_and_not_shown(provider: dict[str, object]) -> None:
    with pytest.raises(InputWrong, match=r"leaf/models\.json: \$\.providers\.acme.*holds a secret") as caught:
        parse_models(models(**provider), "leaf/models.json")

    assert "canary" not in caught.value.message


def test_a_command_that_makes_a_key_is_refused() -> None:
    with pytest.raises(InputWrong, match="runs a command"):
        parse_models(models(apiKey="!pass show key"), "m")


@pytest.mark.parametrize("key", ["none", "unused", "", "NONE"])
def test_an_obvious_placeholder_is_no_secret(key: str) -> None:
    assert parse_models(models(apiKey=key), "m")["acme"].api_key == key


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000])
def test_json_that_is_no_object_is_refused_with_its_file(data: bytes) -> None:
    with pytest.raises(InputWrong, match="where: not a valid JSON object"):
        parse_json_object(data, "where")


def test_a_reference_to_a_variable_is_not_its_value() -> None:
    assert (variable_of("$A_KEY"), variable_of("${A_KEY}"), variable_of("$A-B"), variable_of("A")) == (
        "A_KEY",
        "A_KEY",
        None,
        None,
    )
    assert not looks_secret("$GHP_TOKEN_WITH_A_VERY_LONG_NAME_012345Abc")
