"""Who will call a model, over which route, with whose credential: resolved, or refused with the question to answer.

Only the executor can be metered so far; a config that needs any other caller is refused, never run undeclared.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from windtunnel.domain.cell import model_leaf
from windtunnel.domain.config import Config, ProviderDeclared, RoleDeclared, RouteDeclared
from windtunnel.domain.role import EXECUTOR, Bounds, Role, Route, Thinking
from windtunnel.domain.secret_shapes import is_placeholder, looks_secret, variable_of
from windtunnel.errors import InputWrong, NotBuiltYet

__all__ = ["Callers", "check_credential", "check_policy", "refuse_unmetered", "resolve_callers", "split_model"]

# The variable a provider's own tools read, used when a config redirects the provider and names no key.
_KNOWN_CREDENTIALS = {
    "deepseek": "DEEPSEEK_API_KEY",
    "groq": "GROQ_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "zai": "ZAI_API_KEY",
}
OPENROUTER_EXCEPTIONS = frozenset({"openrouter/deepseek/deepseek-v4-flash"})
_VARIABLE_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_DIALECT = "openai-completions"


@dataclass(frozen=True)
class Callers:
    """The roles of a config and the routes they use; `unused` names declared routes that nothing takes."""

    roles: tuple[Role, ...] = ()
    routes: tuple[Route, ...] = ()
    unused: tuple[str, ...] = ()


def split_model(model: str) -> tuple[str, str]:
    """`provider/model` as its two parts. Raises InputWrong when one is missing."""
    provider, _, name = model.partition("/")
    leaf = model.rsplit("/", 1)[-1]
    if not provider or not name or not leaf or any(c.isspace() or not c.isprintable() for c in model):
        raise InputWrong(f"--model {model!r}: expected provider/model, such as zai/glm-5.2.")
    return provider, name


def check_policy(model: str, *, allow_openrouter: bool) -> list[str]:
    """Refuse models that must not be called as asked; returns warnings."""
    provider, name = split_model(model)
    if provider == "openai-codex":
        raise NotBuiltYet("openai-codex/* (Codex sign-in and its dialect)", "--model")
    if provider == "openrouter" and model not in OPENROUTER_EXCEPTIONS and not allow_openrouter:
        raise InputWrong(
            f"--model {model}: OpenRouter is refused by policy: it may serve another model or level than asked. "
            "Use the provider's own route, or consent with --allow-openrouter."
        )
    if provider != "zai" and re.search(r"(^|/)glm-", name, re.IGNORECASE):
        return [f"{model}: a GLM model on another provider; prefer direct Z.AI (zai/...)"]
    return []


def refuse_unmetered(config: Config, model: str | None) -> None:
    """Refuse a config that needs a caller other than the executor. Raises NotBuiltYet naming file and role."""
    where = f"config {config.name}"
    top = (config.leaf or "").split("/")[0]
    if top and top != model_leaf(model):
        role = top.removeprefix(model_leaf(model) + "+")
        raise NotBuiltYet(f"role {role}", f"{where}: the chosen leaf {config.leaf}")
    if config.leaf and config.has(f"{config.leaf}/advisor.json"):
        raise NotBuiltYet("role advisor", f"{where}: {config.leaf}/advisor.json")
    for key, roles in (
        ("observational-memory", "roles observer, reflector, dropper"),
        ("packages", "packages (extensions that no role covers)"),
        ("extensions", "extensions that no role covers"),
    ):
        if config.settings.get(key):
            raise NotBuiltYet(roles, f"{where}: {config.leaf}/settings.json, key {key!r}")
    if config.has("extensions"):
        first = next(f.path for f in config.files if f.path.startswith("extensions/"))
        raise NotBuiltYet("an extension that no role covers (which models does it call?)", f"{where}: {first}")


def resolve_callers(config: Config, *, model: str | None, thinking: Thinking, calls_models: bool) -> Callers:
    """The executor of a config and its route. Raises InputWrong with the question when the route cannot be told."""
    if model is None or not calls_models:
        return Callers(unused=tuple(config.toml.routes))
    provider, name = split_model(model)
    _refuse_shims(config, provider)
    declared = config.toml.routes.get(provider)
    if declared is not None:
        route = _declared_route(config, provider, declared)
    elif provider in config.providers:
        route = _models_route(config, provider, name, config.providers[provider])
    else:
        raise InputWrong(
            f"config {config.name}: where does provider {provider!r} live? Say it in config.toml "
            f'([routes.{provider}] with base_url and credential = "NAME") or in the leaf\'s models.json '
            f'(providers.{provider} with baseUrl and apiKey "$NAME").'
        )
    wanted = next((r for r in config.toml.roles if r.name == EXECUTOR), RoleDeclared(name=EXECUTOR))
    role = Role(
        name=EXECUTOR,
        provider=provider,
        model=name,
        thinking=thinking,
        route=route.name,
        billing=wanted.billing or ("local" if route.credential is None else "paid"),
        bounds=Bounds(max_calls=wanted.max_calls, max_tokens=wanted.max_tokens, max_concurrency=wanted.max_concurrency),
    )
    unused = tuple(r for r in (*config.toml.routes, *config.providers) if r != provider)
    return Callers(roles=(role,), routes=(route,), unused=unused)


def _refuse_shims(config: Config, executor: str) -> None:
    """A provider beside the executor's that lives on this machine is a worker's shim: calls that nobody meters."""
    for name, declared in config.providers.items():
        local = next((url for url in _addresses(declared) if _is_loopback(url)), None)
        if name != executor and local is not None:
            raise NotBuiltYet(
                f"a worker behind provider {name!r} at {local}",
                f"config {config.name}: {config.leaf}/models.json providers.{name}",
            )


def _addresses(declared: ProviderDeclared) -> Iterator[str]:
    yield from (url for url in (declared.base_url, *(m.base_url for m in declared.models)) if url is not None)


def _is_loopback(url: str) -> bool:
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost") or host.startswith("127."):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _declared_route(config: Config, provider: str, declared: RouteDeclared) -> Route:
    where = f"config {config.name}: config.toml [routes.{provider}]"
    if declared.dialect != _DIALECT:
        raise NotBuiltYet(f"dialect {declared.dialect!r}", where)
    if declared.kind == "replay":
        if declared.script is None or declared.base_url is not None:
            raise InputWrong(f"{where}: kind replay takes `script` (a replay script in the config), and no base_url.")
        digest = config.scripts[declared.script]
        name = _checked_name(declared.credential, where)
        return Route(name=provider, kind="replay", script=declared.script, script_sha256=digest, credential=name)
    if declared.base_url is None or declared.script is not None:
        raise InputWrong(f"{where}: kind http takes `base_url` (and `credential`), and no script.")
    return _http_route(provider, declared.base_url, declared.credential, where)


def _models_route(config: Config, provider: str, model: str, declared: ProviderDeclared) -> Route:
    where = f"config {config.name}: {config.leaf}/models.json providers.{provider}"
    own = next((m for m in declared.models if m.id == model), None)
    api = (own.api if own else None) or declared.api or _DIALECT
    base_url = (own.base_url if own else None) or declared.base_url
    if api != _DIALECT:
        raise NotBuiltYet(f"dialect {api!r}", where)
    if base_url is None:
        raise InputWrong(f"{where}: no baseUrl: where does {provider} live? Add baseUrl, or [routes.{provider}].")
    key = declared.api_key
    credential = key if key is None or is_placeholder(key) else variable_of(key)
    return _http_route(provider, base_url, credential, where)


def _http_route(provider: str, base_url: str, credential: str | None, where: str) -> Route:
    host = _host(base_url, where)
    if credential is None:
        credential = _KNOWN_CREDENTIALS.get(provider)
        if credential is None and not _is_loopback(base_url):
            raise InputWrong(
                f"{where}: which credential does {host} want? Name the host variable that holds it "
                '(credential = "NAME", or apiKey "$NAME" in models.json), or "none" for a server without keys.'
            )
    return Route(name=provider, base_url=base_url.rstrip("/"), credential=_checked_name(credential, where))


def _checked_name(credential: str | None, where: str) -> str | None:
    """The name of a host variable; None for a server without keys. The value is never echoed: it may be a key."""
    if credential is None or is_placeholder(credential):
        return None
    if not _VARIABLE_NAME.match(credential) or looks_secret(credential):
        raise InputWrong(f"{where}: credential must be the NAME of a host variable (letters, digits, _), not a value.")
    return credential


def _host(base_url: str, where: str) -> str:
    try:
        parts = urlsplit(base_url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InputWrong(f"{where}: base URL is not a URL: {error}. Mend it.") from error
    if parts.username or parts.password:
        raise InputWrong(f"{where}: base URL holds a user or password; name a credential instead.")
    if parts.scheme not in {"http", "https"} or not host or parts.query or parts.fragment:
        raise InputWrong(f"{where}: base URL {base_url!r}: expected http(s)://host[:port][/path], and nothing more.")
    return host


def check_credential(role: Role, route: Route, environ: Mapping[str, str]) -> None:
    """Host side: the variable is there and looks like one key. Raises InputWrong naming role, route, remedy."""
    if route.credential is None:
        return
    value = environ.get(route.credential, "")
    who = f"role {role.name}, route {route.name}: host variable {route.credential}"
    if not value:
        raise InputWrong(f"{who} is not set. Export it; only its name is ever stored.")
    if any(c.isspace() or not c.isprintable() for c in value) or is_placeholder(value):
        raise InputWrong(
            f"{who} does not look like a credential (spaces, line breaks, or a placeholder). Export the bare key."
        )
