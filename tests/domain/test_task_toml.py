"""task.toml to Task: defaults, deprecated keys, refusals by name, errors that name file, key and value."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.domain.task import Task
from windtunnel.domain.task_toml import TaskFiles, parse_task
from windtunnel.errors import InputWrong

FILES = TaskFiles(
    instruction_sha256="sha256:1",
    environment_hash="sha256:2",
    dockerfile="FROM python:3.12-bookworm\nWORKDIR /app\n",
    tests_hash="sha256:3",
    test_script=True,
    tests_dockerfile="FROM debian:12\n",
    solution=True,
)


def task(text: str = "", task_id: str = "abs-cache", **files: Any) -> Task:
    return parse_task(text, task_id=task_id, facts=dataclasses.replace(FILES, **files))


def refusal(text: str = "", **files: Any) -> str:
    with pytest.raises(InputWrong) as caught:
        task(text, **files)
    return caught.value.message


def test_an_empty_file_has_all_defaults_of_the_format() -> None:
    found = task()

    assert (found.id, found.name, found.schema_version) == ("abs-cache", None, "1.4")
    assert (found.hand_over, found.verifier_image) == ("snapshot", None)
    assert (found.agent_network, found.verifier_network) == ("public", "public")
    assert (found.agent_timeout_s, found.verifier_timeout_s, found.build_timeout_s) == (None, 600.0, 600.0)
    assert (found.limits.memory_mb, found.limits.cpus, found.limits.pids) == (None, None, 4096)
    assert found.image.label == "build:sha256:2+python:3.12-bookworm"
    assert found.reward_range == (0.0, 1.0)
    assert not found.local
    assert "the verifier has the public network" in found.warnings


def test_the_shape_of_deepswe_is_read() -> None:
    found = task(
        """
        schema_version = "1.3"
        artifacts = ["/logs/artifacts/model.patch", {source = "/app/out", destination = "out", exclude = ["*.o"]}]
        [task]
        name = "datacurve/abs-cache"
        [verifier]
        network_mode = "no-network"
        environment_mode = "separate"
        timeout_sec = 1800
        env = {A = "1"}
        [verifier.environment]
        build_timeout_sec = 1800.0
        cpus = 2
        memory_mb = 8192
        [[verifier.collect]]
        command = "git diff > /logs/artifacts/model.patch"
        timeout_sec = 300
        user = 0
        [agent]
        network_mode = "no-network"
        timeout_sec = 5400
        user = "agent"
        [environment]
        docker_image = "public.ecr.aws/x/y:abs-cache-v1.1"
        gpus = 0
        mcp_servers = []
        env = {B = "${B:-two}"}
        [environment.healthcheck]
        command = "true"
        interval_sec = 2
        """
    )

    assert found.hand_over == "artifacts"
    assert found.image.reference == "public.ecr.aws/x/y:abs-cache-v1.1"
    assert found.verifier_image is not None
    assert (found.verifier_image.context, found.verifier_image.base) == ("tests", "debian:12")
    assert (found.agent_network, found.verifier_network) == ("none", "none")
    assert (found.agent_timeout_s, found.verifier_timeout_s, found.build_timeout_s) == (5400.0, 1800.0, 1800.0)
    assert (found.verifier_limits.memory_mb, found.limits.memory_mb) == (8192, None)
    assert [(c.command, c.timeout_s, c.user) for c in found.collect] == [
        ("git diff > /logs/artifacts/model.patch", 300.0, "0")
    ]
    assert [(a.source, a.destination, a.exclude) for a in found.artifacts] == [
        ("/logs/artifacts/model.patch", None, ()),
        ("/app/out", "out", ("*.o",)),
    ]
    assert (found.env, found.verifier_env, found.agent_user) == ({"B": "two"}, {"A": "1"}, "agent")
    assert found.healthcheck is not None
    assert (found.healthcheck.interval_s, found.healthcheck.timeout_s, found.healthcheck.retries) == (2.0, 30.0, 3)
    assert found.warnings == ()


def test_deprecated_keys_are_mapped() -> None:
    found = task('version = "1.0"\n[environment]\nmemory = "2G"\nstorage = "512M"\nallow_internet = false\n')

    assert found.schema_version == "1.0"
    assert (found.limits.memory_mb, found.limits.storage_mb) == (2048, 512)
    assert (found.agent_network, found.verifier_network) == ("none", "none")


def test_a_shared_verifier_has_the_tasks_limits_and_variables() -> None:
    found = task('[environment]\nmemory_mb = 700\nenv = {A = "1", B = "2"}\n[verifier.env]\nB = "3"\n')

    assert found.verifier_limits == found.limits
    assert found.verifier_env == {"A": "1", "B": "3"}


def test_our_own_table_is_read() -> None:
    found = task("[metadata.windtunnel]\nreward_range = [-1, 1]\nlocal = true\npids = 100\n")

    assert (found.reward_range, found.local, found.limits.pids) == ((-1.0, 1.0), True, 100)


def test_unknown_keys_are_ignored_and_listed() -> None:
    found = task("colour = 1\n[environment]\nmemmory_mb = 5\n[metadata]\nfree = 1\n[metadata.windtunnel]\nx = 1\n")

    assert "unknown key colour is ignored" in found.warnings
    assert "unknown key environment.memmory_mb is ignored" in found.warnings
    assert "unknown key metadata.windtunnel.x is ignored" in found.warnings
    assert not any("free" in warning for warning in found.warnings)


@pytest.mark.parametrize("version", ["1.5", "2.0", "0.9", "10.4"])
def test_another_schema_is_refused_by_number(version: str) -> None:
    assert f"'{version}'" in refusal(f'schema_version = "{version}"')
    assert f"'{version}'" in refusal(f'version = "{version}"\n[new]\nthing = 1')


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[environment]\ngpus = 1", "environment.gpus = 1"),
        ('[environment]\ngpu_types = ["H100"]', "environment.gpu_types = ['H100']"),
        ('[environment.tpu]\ntype = "v5"', "environment.tpu"),
        ('[[environment.mcp_servers]]\nname = "files"', "environment.mcp_servers = ['files']"),
        ('[verifier.environment]\nmcp_servers = [{name = "files"}]', "verifier.environment.mcp_servers"),
        ('[environment]\nos = "windows"', "environment.os = 'windows'"),
        ('[environment]\nskills_dir = "/skills"', "environment.skills_dir = '/skills'"),
        ('[environment]\nnetwork_mode = "allowlist"', "environment.network_mode = 'allowlist'"),
        ('[agent]\nnetwork_mode = "allowlist"', "agent.network_mode = 'allowlist'"),
        ('[verifier]\nallowed_hosts = ["x.org"]', "verifier.allowed_hosts = ['x.org']"),
        ('[[steps]]\nname = "one"', "steps = ['one']"),
        ('artifacts = [{source = "/x", service = "db"}]', "artifacts[0].service = 'db'"),
        ('[[verifier.collect]]\ncommand = "x"\nservice = "db"', "verifier.collect[0].service = 'db'"),
        ('[environment.env]\nKEY = "${HOST_KEY}"', "environment.env.KEY = '${HOST_KEY}'"),
        ('[verifier.env]\nKEY = "a${HOST_KEY}b"', "HOST_KEY"),
        ('[solution.env]\nKEY = "${HOST_KEY}"', "solution.env.KEY"),
    ],
)
def test_a_wish_that_is_not_built_is_refused_by_name(text: str, named: str) -> None:
    message = refusal(text)

    assert message.startswith("tasks/abs-cache/task.toml: ")
    assert named in message


def test_a_key_that_asks_for_nothing_is_not_refused() -> None:
    task('steps = []\n[environment]\ngpus = 0\ngpu_types = []\nmcp_servers = []\nos = "Linux"\nallowed_hosts = []\n')


def test_compose_files_and_step_folders_are_refused() -> None:
    assert "docker-compose.yaml" in refusal(compose=("docker-compose.yaml",))
    assert "steps/" in refusal(steps_folder=True)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[environment]\nmemory_mb = "2G"', "environment.memory_mb = '2G'"),
        ("[environment]\ncpus = true", "environment.cpus = True"),
        ("[environment]\ncpus = -1", "environment.cpus = -1"),
        ('[agent]\ntimeout_sec = "long"', "agent.timeout_sec = 'long'"),
        ("[agent]\ntimeout_sec = 0", "agent.timeout_sec = 0"),
        ("[agent]\ntimeout_sec = inf", "agent.timeout_sec = inf"),
        ("[metadata]\nscore = nan", "metadata.score = nan"),
        ("[environment.env]\nA = 1", "environment.env"),
        ('[environment.env]\n"A=B" = "x"', "A=B"),
        ('environment = "none"', "environment = 'none'"),
        ("[task]\ndescription = 'x'", "task"),
        ("[task]\nname = 'noorg'", "task.name = 'noorg'"),
        ("artifacts = [{destination = 'x'}]", "artifacts[0]"),
        ("artifacts = ['relative']", "artifacts[0].source = 'relative'"),
        ("artifacts = [{source = '/x', destination = '../x'}]", "artifacts[0].destination = '../x'"),
        ("[[verifier.collect]]\ntimeout_sec = 1", "verifier.collect[0]"),
        ("[verifier]\nenvironment_mode = 'none'", "verifier.environment_mode = 'none'"),
        ("[verifier]\nenvironment_mode = 'shared'\n[verifier.environment]\ncpus = 1", "contradicts"),
        ("[environment]\nallow_internet = true\nnetwork_mode = 'no-network'", "contradicts"),
        ("[environment]\nmemory = '2G'\nmemory_mb = 5", "contradicts"),
        ("[environment]\nmemory = '2X'", "environment.memory = '2X'"),
        ("[environment]\nworkdir = 'app'", "environment.workdir = 'app'"),
        ("[environment]\ndocker_image = '--privileged'", "docker_image = '--privileged'"),
        ("[metadata.windtunnel]\nreward_range = [1, 0]", "reward_range"),
        ("[metadata.windtunnel]\nreward_range = [1]", "metadata.windtunnel.reward_range"),
        ("[metadata.windtunnel]\nlocal = 'yes'", "metadata.windtunnel.local = 'yes'"),
        ("schema_version = 1.4", "schema_version = 1.4"),
        ("schema_version = 'new'", "schema_version = 'new'"),
        ("a = ", "not valid TOML"),
        ("x = " + "[" * 5000, "not valid TOML"),
    ],
)
def test_a_wrong_value_names_file_key_and_value(text: str, named: str) -> None:
    message = refusal(text)

    assert message.startswith("tasks/abs-cache/task.toml: ")
    assert named in message
    assert "\n" not in message.strip() or "not valid TOML" in message


def test_missing_parts_are_named() -> None:
    assert "instruction.md" in refusal(instruction_sha256=None)
    assert "tests/ is missing" in refusal(tests_hash=None, test_script=False)
    assert "tests/test.sh" in refusal(test_script=False)
    assert "tests/Dockerfile" in refusal('[verifier]\nenvironment_mode = "separate"', tests_dockerfile=None)
    assert "no image" in refusal(dockerfile=None)
    assert "environment/Dockerfile: it has no FROM" in refusal(dockerfile="RUN x\n")


def test_a_separate_verifier_with_an_image_needs_no_tests_folder() -> None:
    found = task('[verifier.environment]\ndocker_image = "x/y:1"', tests_hash=None, tests_dockerfile=None)

    assert found.verifier_image is not None
    assert found.verifier_image.reference == "x/y:1"


def test_a_local_task_has_no_build_steps() -> None:
    local = "[metadata.windtunnel]\nlocal = true\n"

    assert "without build steps" in refusal(local, dockerfile="FROM x\nRUN make\n")
    assert "without build steps" in refusal(local + '[environment]\ndocker_image = "x"', dockerfile=None)


@pytest.mark.parametrize("task_id", ["..", "a/b", ".hidden", "_runs", "a:b", "", "a\nb", "x" * 121])
def test_an_id_that_cannot_be_a_folder_is_refused(task_id: str) -> None:
    with pytest.raises(InputWrong, match="cannot be used"):
        task(task_id=task_id)


def test_the_verifier_table_is_in_the_verifier_revision_only() -> None:
    before, after = task("[verifier]\ntimeout_sec = 1"), task("[verifier]\ntimeout_sec = 2")

    assert before.task_revision == after.task_revision
    assert before.verifier_revision != after.verifier_revision


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("[agent]\ntimeout_sec = 9", {}),
        ("", {"instruction_sha256": "sha256:x"}),
        ("", {"environment_hash": "sha256:x"}),
        ("", {"pre_artifacts_sha256": "sha256:x"}),
    ],
)
def test_the_rest_is_in_the_task_revision_only(text: str, files: dict[str, str]) -> None:
    before, after = task(), task(text, **files)

    assert before.task_revision != after.task_revision
    assert before.verifier_revision == after.verifier_revision


def test_comments_and_order_change_no_revision() -> None:
    assert (
        task("# x\n[agent]\nuser = 'a'\ntimeout_sec = 5").task_revision
        == task("agent = {timeout_sec = 5, user = 'a'}").task_revision
    )


@given(st.text(max_size=80))
def test_any_text_is_a_task_or_one_clear_error(text: str) -> None:
    try:
        task(text)
    except InputWrong as error:
        assert "task.toml" in error.message


_TABLE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["env", "cpus", "command", "source", "name", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["task", "agent", "verifier", "environment", "artifacts", "steps", "metadata", "schema_version"]
        ),
        _TABLE,
        max_size=4,
    )
)
def test_any_tables_are_a_task_or_one_clear_error(document: dict[str, Any]) -> None:
    try:
        task(_toml(document))
    except InputWrong as error:
        assert "tasks/abs-cache/" in error.message


def _toml(value: Any) -> str:
    return "".join(f"{key} = {_inline(inner)}\n" for key, inner in value.items() if inner is not None)


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(f"\\u{ord(c):04x}" if ord(c) < 0xD800 else "x" for c in value) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(_inline(inner) for inner in value if inner is not None) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(inner)}" for key, inner in value.items() if inner is not None) + "}"
    return repr(value)
