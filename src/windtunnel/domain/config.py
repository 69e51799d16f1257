"""A config: one agent set-up, read from a directory with leaf files per model and thinking level.

Here is the meaning of its files, from text; `store/configs.py` finds and reads them. `where` in every function is
the file's path, for messages only. Everything here raises InputWrong or NotBuiltYet with that path.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, Literal, TypeVar

import msgspec

from windtunnel.domain.digest import decode
from windtunnel.domain.plan import ConfigFile
from windtunnel.domain.secret_shapes import is_placeholder, looks_secret, names_secret, variable_of
from windtunnel.errors import InputWrong, NotBuiltYet

__all__ = [
    "HARNESS_FLAGS",
    "LEAF_FILES",
    "ROOT_FILES",
    "ROOT_FOLDERS",
    "Config",
    "ConfigToml",
    "ProviderDeclared",
    "RoleDeclared",
    "RouteDeclared",
    "check_flags",
    "parse_config_toml",
    "parse_env",
    "parse_json_object",
    "parse_models",
]

T = TypeVar("T")

ROOT_FILES = ("config.toml", "command", "env", "orchestration.md", "pi-flags", "smoke.json", "system_preamble.md")
ROOT_FOLDERS = ("bin", "extensions", "skills")
LEAF_FILES = ("advisor.json", "models.json", "pi-flags", "settings.json", "smoke.json")

# What the harness itself says to the subject; a config that says it too would make the plan a lie.
HARNESS_FLAGS = frozenset(
    {"-p", "--print", "--mode", "--model", "--thinking", "--session-dir", "--append-system-prompt", "--offline"}
)
_EXTENSION_FLAGS = frozenset({"-e", "--extension"})
_VARIABLE_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


class RouteDeclared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[routes.<provider>]` of config.toml, as written."""

    kind: Literal["http", "replay"] = "http"
    base_url: str | None = None
    dialect: str = "openai-completions"
    credential: str | None = None
    script: str | None = None


class RoleDeclared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[roles]]` of config.toml, as written. Bounds are per attempt."""

    name: str
    max_calls: int | None = None
    max_tokens: int | None = None
    max_concurrency: int | None = None
    billing: Literal["local", "paid", "subscription"] | None = None


class ConfigToml(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """config.toml. `subject`: `name@version` that this config is made for. `varies`: the declared variable, as field
    names of the differences block."""

    description: str = ""
    subject: str | None = None
    varies: tuple[str, ...] = ()
    routes: dict[str, RouteDeclared] = {}
    roles: tuple[RoleDeclared, ...] = ()


class ModelDeclared(msgspec.Struct, frozen=True, kw_only=True):
    """A model of a provider in models.json; other keys are the subject's business."""

    id: str
    api: str | None = None
    base_url: str | None = msgspec.field(default=None, name="baseUrl")


class ProviderDeclared(msgspec.Struct, frozen=True, kw_only=True):
    """A provider in models.json. `api_key`: `$VAR`, `${VAR}` or a placeholder, never a key."""

    base_url: str | None = msgspec.field(default=None, name="baseUrl")
    api: str | None = None
    api_key: str | None = msgspec.field(default=None, name="apiKey")
    models: tuple[ModelDeclared, ...] = ()


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A config as it lies on disk, for one model and level.

    `leaf`: the chosen leaf directory relative to the config, None when the config has none. `unused`: files that
    nothing reads. `overlaid`: root files that a leaf file of the same name replaces. `settings`: settings.json.
    `scripts`: content hash of each replay script. `contract`: path of the smoke contract.
    """

    name: str
    directory: str
    toml: ConfigToml
    files: tuple[ConfigFile, ...]
    unused: tuple[str, ...] = ()
    overlaid: tuple[str, ...] = ()
    leaf: str | None = None
    env: dict[str, str] = {}
    providers: dict[str, ProviderDeclared] = {}
    settings: dict[str, Any] = {}
    scripts: dict[str, str] = {}
    contract: str | None = None

    def has(self, path: str) -> bool:
        """Whether a file (or anything below a folder) of that path is part of the config."""
        return any(f.path == path or f.path.startswith(path + "/") for f in self.files)


def _convert(value: object, type_: type[T], where: str) -> T:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise InputWrong(f"{where}: {error}. Known keys: {', '.join(_keys(type_))}") from error


def _keys(type_: type) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(type_)]


def parse_config_toml(text: str, where: str) -> ConfigToml:
    """Read config.toml; an unknown key is refused by name, a role that is not built yet too."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputWrong(f"{where}: not valid TOML: {error}. Mend the file.") from error
    for key in set(document) - set(_keys(ConfigToml)):
        raise InputWrong(f"{where}: unknown key {key!r}. Known keys: {', '.join(_keys(ConfigToml))}")
    for name, route in document.get("routes", {}).items() if isinstance(document.get("routes"), dict) else ():
        _convert(route, RouteDeclared, f"{where}: [routes.{name}]")
    for role in document.get("roles", ()) if isinstance(document.get("roles"), list) else ():
        _convert(role, RoleDeclared, f"{where}: [[roles]]")
    parsed = _convert(document, ConfigToml, where)
    _check_roles(parsed, where)
    return parsed


def _check_roles(parsed: ConfigToml, where: str) -> None:
    for role in parsed.roles:
        if role.name != "executor":
            raise NotBuiltYet(f"role {role.name!r} (only the executor can be metered so far)", f"{where}: [[roles]]")
        for bound in ("max_calls", "max_tokens", "max_concurrency"):
            value = getattr(role, bound)
            if value is not None and value < 1:
                raise InputWrong(f"{where}: [[roles]] {bound} = {value}: a bound is at least 1; leave it out for none.")
    if len(parsed.roles) > 1:
        raise InputWrong(f"{where}: [[roles]] declares the executor {len(parsed.roles)} times; keep one.")


def parse_env(text: str, where: str) -> dict[str, str]:
    """Read `KEY=VALUE` lines (`#` comments). Secrets are refused without being shown."""
    env: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, equals, value = stripped.partition("=")
        spot = f"{where}:{number}"
        if not equals or not _VARIABLE_NAME.match(key):
            raise InputWrong(f"{spot}: expected KEY=VALUE, one a line. Mend the line.")
        _check_variable(key, value, env, spot)
        env[key] = value
    return env


def _check_variable(key: str, value: str, known: dict[str, str], spot: str) -> None:
    if names_secret(key) or looks_secret(value):
        raise InputWrong(
            f"{spot}: {key} looks like a secret; secrets are never kept in config files. "
            "Set it in the host's environment and name the variable as the route's credential."
        )
    if key.startswith("WINDTUNNEL_"):
        raise InputWrong(f"{spot}: {key}: names that begin with WINDTUNNEL_ are set by the harness. Rename it.")
    if key in known:
        raise InputWrong(f"{spot}: {key} is set twice. Keep one line.")


def flag_lines(text: str) -> list[str]:
    """The arguments in a pi-flags file: one a line, `#` comments."""
    return [line.strip() for line in text.split("\n") if line.strip() and not line.strip().startswith("#")]


def check_flags(text: str, where: str) -> None:
    """Refuse arguments in pi-flags that the harness sets, that load extensions, or that carry a key."""
    for line in flag_lines(text):
        flag = line.split("=", 1)[0].split()[0]
        if flag in HARNESS_FLAGS:
            raise InputWrong(f"{where}: {flag} is set by the harness; remove it from the file.")
        if flag in _EXTENSION_FLAGS:
            raise NotBuiltYet(f"{flag} (an extension that no role covers)", where)
        if flag == "--api-key" or looks_secret(line):
            raise InputWrong(f"{where}: {flag} carries a secret; secrets are never kept in config files. Remove it.")


def parse_json_object(data: bytes, where: str) -> dict[str, Any]:
    """Read a JSON file that must hold an object. Raises InputWrong with the place."""
    try:
        value = decode(data, dict[str, Any])
    except (ValueError, RecursionError) as error:
        found = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise InputWrong(f"{where}: not a valid JSON object: {found}. Mend the file.") from error
    return value


def parse_models(data: bytes, where: str) -> dict[str, ProviderDeclared]:
    """Read the providers of models.json. A literal key anywhere in the file is refused, and never shown."""
    document = parse_json_object(data, where)
    _refuse_literals(document, where, "$")
    declared = document.get("providers", {})
    if not isinstance(declared, dict):
        raise InputWrong(f"{where}: `providers` must be an object. Mend the file.")
    return {name: _convert(value, ProviderDeclared, f"{where}: providers.{name}") for name, value in declared.items()}


def _refuse_literals(value: object, where: str, place: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str):
                _refuse_literal(str(key), item, where, f"{place}.{key}")
            else:
                _refuse_literals(item, where, f"{place}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _refuse_literals(item, where, f"{place}[{number}]")


def _refuse_literal(key: str, value: str, where: str, place: str) -> None:
    is_key = key.lower() in {"apikey", "api_key", "authorization", "x-api-key", "x-goog-api-key", "token", "password"}
    if is_key and value.startswith("!"):
        raise InputWrong(f'{where}: {place} runs a command to get a key; name a host variable instead: "$NAME".')
    literal = is_key and variable_of(value) is None and not is_placeholder(value)
    if literal or looks_secret(value):
        raise InputWrong(
            f"{where}: {place} holds a secret; secrets are never kept in config files. "
            'Write "$NAME" and set NAME on the host.'
        )
