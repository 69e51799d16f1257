"""Drafting roles: who will call a model, over which route, with whose credential."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drafting import config, planned

from builders import a_workspace
from windtunnel.domain.digest import to_json
from windtunnel.domain.role import Bounds, Thinking
from windtunnel.errors import InputWrong, NotBuiltYet


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return a_workspace(tmp_path)


# ---- other callers of models


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"m-1/high/advisor.json": "{}"}, r"role advisor.*m-1/high/advisor\.json"),
        ({"m-1/high/settings.json": '{"observational-memory": {"passive": true}}'}, "observer, reflector, dropper"),
        ({"m-1/high/settings.json": '{"packages": ["npm:x"]}'}, "packages"),
        ({"m-1/high/settings.json": '{"extensions": ["./x.ts"]}'}, "no role covers"),
        ({"extensions/worker.ts": "x"}, r"no role covers.*extensions/worker\.ts"),
        ({"config.toml": "[[roles]]\nname = 'observer'\n"}, "role 'observer'"),
    ],
)
def test_a_config_that_needs_another_caller_is_refused(here: Path, files: dict[str, str], says: str) -> None:
    route = {"m-1/high/models.json": '{"providers": {"replay": {"baseUrl": "http://127.0.0.1:1/v1"}}}'}
    config(here, "c", (route if "config.toml" not in files else {}) | files)

    with pytest.raises(NotBuiltYet, match=says):
        planned(here, "pi", configs=("c",))


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:9/v1", "http://127.8.0.1/", "http://LOCALHOST:1", "http://[::1]:80/v1", "http://0.0.0.0:9"],
)
@pytest.mark.parametrize("of_model", [False, True])
def test_a_second_provider_on_this_machine_is_a_worker_shim(here: Path, url: str, of_model: bool) -> None:
    shim = {"models": [{"id": "w", "baseUrl": url}]} if of_model else {"baseUrl": url}
    acme = {"baseUrl": "http://127.0.0.1:1/v1"}
    config(here, "c", {"m-1/high/models.json": json.dumps({"providers": {"acme": acme, "shim": shim}})})

    with pytest.raises(NotBuiltYet, match=r"a worker behind provider 'shim' at .*config c: m-1/high/models\.json"):
        planned(here, model="acme/m-1", configs=("c",))


def test_a_second_provider_elsewhere_stays_a_warning(here: Path) -> None:
    urls = {"acme": "http://127.0.0.1:1/v1", "far": "https://localhost.example.test/v1", "odd": "http://[x/"}
    providers = {name: {"baseUrl": url} for name, url in urls.items()}
    config(here, "c", {"m-1/high/models.json": json.dumps({"providers": providers})})

    plan = planned(here, model="acme/m-1", configs=("c",))

    assert any("declared providers that no role uses: far, odd" in w for w in plan.warnings)


def test_a_chosen_leaf_of_another_role_is_refused_by_name(here: Path) -> None:
    config(here, "c", {"m-1+adv/high/models.json": '{"providers": {"replay": {"baseUrl": "http://127.0.0.1:1/v1"}}}'})

    with pytest.raises(NotBuiltYet, match=r"role adv is not built yet .*config c: the chosen leaf m-1\+adv/high"):
        planned(here, configs=("c",))


# ---- routes and credentials


def test_the_route_of_config_toml_wins_over_models_json(here: Path) -> None:
    models = {"providers": {"acme": {"baseUrl": "https://leaf.test/v1", "apiKey": "${LEAF_KEY}"}, "idle": {}}}
    files = {"m-1/high/models.json": json.dumps(models)}
    config(here, "c", files)
    config(
        here, "d", files | {"config.toml": '[routes.acme]\nbase_url = "https://toml.test/v1/"\ncredential = "TOML_KEY"'}
    )

    plan = planned(
        here, model="acme/m-1", configs=("c", "d"), environ={"LEAF_KEY": "k1", "TOML_KEY": "k2"}, thinking=Thinking.HIGH
    )

    routes = [c.routes[0] for c in plan.configs]
    assert [(r.base_url, r.credential) for r in routes] == [
        ("https://leaf.test/v1", "LEAF_KEY"),
        ("https://toml.test/v1", "TOML_KEY"),
    ]
    assert [r.name for r in routes] == ["acme", "acme-2"]
    assert [c.roles[0].route for c in plan.configs] == ["acme", "acme-2"]
    assert any("declared providers that no role uses: idle" in w for w in plan.warnings)


def test_a_model_of_its_own_address_is_called_there(here: Path) -> None:
    own = {"baseUrl": "https://all.test", "apiKey": "$K_KEY", "models": [{"id": "m-1", "baseUrl": "https://own.test"}]}
    config(here, "c", {"m-1/high/models.json": json.dumps({"providers": {"acme": own}})})

    plan = planned(here, model="acme/m-1", configs=("c",), environ={"K_KEY": "k"})

    assert plan.configs[0].routes[0].base_url == "https://own.test"


def test_an_unknown_provider_is_a_question_with_two_answers(here: Path) -> None:
    with pytest.raises(InputWrong, match=r"where does provider 'acme' live.*\[routes\.acme\].*models\.json"):
        planned(here, model="acme/m-1")


@pytest.mark.parametrize(
    ("route", "says"),
    [
        (
            'dialect = "anthropic-messages"\nbase_url = "https://x.test"',
            "dialect 'anthropic-messages' is not built yet",
        ),
        ('base_url = "ftp://x.test"', "expected http"),
        ('base_url = "https://u:hunter2@x.test"', "holds a user or password"),
        ('base_url = "https://x.test:port/"', "not a URL"),
        ('base_url = "https://x.test/?a=1"', "nothing more"),
        ('credential = "A_KEY"', "takes `base_url`"),
        ('kind = "replay"', "takes `script`"),
        ('base_url = "https://x.test"', "which credential does x.test want"),
        ('base_url = "https://x.test"\ncredential = "sk-hunter2-hunter2"', "the NAME of a host variable"),
    ],
)
def test_a_route_that_cannot_be_right_is_refused(here: Path, route: str, says: str) -> None:
    config(here, "c", {"config.toml": f"[routes.acme]\n{route}\n"})

    with pytest.raises(InputWrong, match=says) as caught:
        planned(here, model="acme/m-1", configs=("c",))
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    "route", ['base_url = "http://127.0.0.1:9/v1"', 'base_url = "https://x.test"\ncredential = "none"']
)
def test_a_server_without_keys_needs_no_credential(here: Path, route: str) -> None:
    config(here, "c", {"config.toml": f"[routes.acme]\n{route}\n"})

    plan = planned(here, model="acme/m-1", configs=("c",))

    assert plan.configs[0].routes[0].credential is None
    assert plan.configs[0].roles[0].billing == "local"


def test_a_redirected_known_provider_keeps_its_own_variable(here: Path) -> None:
    config(here, "c", {"m-1/high/models.json": '{"providers": {"zai": {"baseUrl": "https://zai.test"}}}'})

    with pytest.raises(InputWrong, match=r"role executor, route zai: host variable ZAI_API_KEY is not set\."):
        planned(here, model="zai/m-1", configs=("c",))
    assert planned(here, model="zai/m-1", configs=("c",), environ={"ZAI_API_KEY": "k"}).configs[0].routes[0].credential


@pytest.mark.parametrize("value", ["", "canary with space", "canary\n", "\tcanary", "none"])
def test_a_credential_of_the_wrong_shape_is_refused_and_not_shown(here: Path, value: str) -> None:
    config(here, "c", {"config.toml": '[routes.acme]\nbase_url = "https://x.test"\ncredential = "ACME_KEY"\n'})

    with pytest.raises(InputWrong, match="role executor, route acme: host variable ACME_KEY") as caught:
        planned(here, model="acme/m-1", configs=("c",), environ={"ACME_KEY": value})
    assert "canary" not in caught.value.message


def test_the_value_of_a_credential_is_nowhere_in_the_plan(here: Path) -> None:
    config(here, "c", {"config.toml": '[routes.acme]\nbase_url = "https://x.test"\ncredential = "ACME_KEY"\n'})

    plan = planned(here, model="acme/m-1", configs=("c",), environ={"ACME_KEY": "canary-4711"})

    assert b"canary-4711" not in to_json(plan)
    assert b"ACME_KEY" in to_json(plan)


def test_bounds_and_billing_of_the_executor_are_taken_over(here: Path) -> None:
    toml = '[routes.replay]\nkind = "replay"\nscript = "replay.json"\n[[roles]]\nname = "executor"\nmax_calls = 9\n'
    config(here, "a", {"config.toml": toml + 'billing = "subscription"\n'})

    role = planned(here, configs=("a",)).configs[0].roles[0]

    assert (role.bounds, role.billing) == (Bounds(max_calls=9), "subscription")
