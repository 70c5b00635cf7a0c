"""docker-compose.yml and Dockerfile, as far as they can be checked without an engine: by Compose itself, and against the program."""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from jobs.cli.app import command_tree
from jobs.settings_sources import load_settings
from tests.test_repository import ROOT

FILE = ROOT / "docker-compose.yml"
OURS = {"migrate", "worker", "context", "web", "flower"}
SERVICES = OURS | {"postgres", "redis"}
ENVIRONMENT = {"SOSTENUTO_MODEL": "a-model", "PATH": os.environ["PATH"]}


@functools.cache
def compose() -> list[str]:
    """Compose as the engine's plugin or as a program of its own; any of the last years' versions."""
    if shutil.which("docker"):
        plugin = ["docker", "compose"]
        if subprocess.run([*plugin, "version"], capture_output=True, check=False).returncode == 0:
            return plugin
    found = shutil.which("docker-compose")
    assert found, (
        "needs Compose, without an engine: apt-get install -y --no-install-recommends docker-compose"
    )
    return [found]


@functools.cache
def config() -> dict[str, Any]:
    """What `docker compose config` makes of the file: anchors merged, variables filled in, everything validated."""
    ran = _ask(ENVIRONMENT)
    assert ran.returncode == 0, ran.stderr
    loaded: dict[str, Any] = YAML(typ="safe").load(ran.stdout)
    return loaded


def _ask(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    with tempfile.NamedTemporaryFile() as empty:  # instead of an .env that may lie beside the file
        command = [*compose(), "--env-file", empty.name, "--file", str(FILE), "config"]
        return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)


def _service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = config()["services"][name]
    return found


def test_compose_takes_the_file_and_asks_for_the_model() -> None:
    assert set(config()["services"]) == SERVICES
    ran = _ask({"PATH": ENVIRONMENT["PATH"]})
    assert ran.returncode != 0
    assert "SOSTENUTO_MODEL" in ran.stderr


def test_only_the_web_server_is_published_and_on_loopback() -> None:
    text = FILE.read_text(encoding="utf-8")
    ports = re.findall(r"^ +ports:\n((?: +- .*\n)+)", text, re.MULTILINE)
    assert [port.strip() for port in ports] == ['- "127.0.0.1:8787:8787"']
    assert [name for name in SERVICES if _service(name).get("ports")] == ["web"]
    assert [name for name in SERVICES if _service(name).get("network_mode")] == []
    for name in ("postgres", "redis", "migrate", "flower"):
        assert set(_service(name)["networks"]) == {"inside"}, name
    assert config()["networks"]["inside"]["internal"] is True


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_is_hardened(name: str) -> None:
    service = _service(name)
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert not service.get("privileged")
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["read_only"] is True
    assert int(service["pids_limit"]) > 0
    if name in OURS:
        assert "user" not in service, "the image's own user, which is not root"
    else:
        assert service["user"] not in ("root", "0"), "its image starts as root"
    volumes = [
        volume["source"] if isinstance(volume, dict) else volume.partition(":")[0]
        for volume in service.get("volumes", [])
    ]
    assert set(volumes) <= set(config()["volumes"]), "no folder of the host"
    if name == "migrate":
        assert service["healthcheck"] in ({"disable": True}, {"test": ["NONE"]})
    else:
        assert service["healthcheck"]["test"][0].startswith("CMD")


def test_the_agents_alone_have_a_profile_of_their_own_and_it_is_there() -> None:
    loosened = {"seccomp", "apparmor:unconfined", "systempaths=unconfined"}
    for name in SERVICES:
        options = {
            "seccomp" if option.startswith("seccomp:") else option  # some versions put the file's text there
            for option in _service(name)["security_opt"]
        }
        assert options - {"no-new-privileges:true"} == (loosened if name == "worker" else set()), name
    assert "- seccomp:./deploy/seccomp.json\n" in FILE.read_text(encoding="utf-8")
    assert (ROOT / "deploy" / "seccomp.json").is_file()


def test_no_secret_stands_in_the_file_or_in_an_environment() -> None:
    """Each is a file that the program reads; Flower, which people of other machines may see, has the fewest."""
    for name in SERVICES:
        for variable, value in _service(name).get("environment", {}).items():
            if re.search("PASSWORD|KEY|SECRET|TOKEN", variable):
                assert variable.endswith("_FILE"), (name, variable)
                assert value.removeprefix("/run/secrets/") in _secrets(name), (name, variable)
    assert {secret["file"].removeprefix(f"{ROOT}/") for secret in config()["secrets"].values()} == {
        f"secrets/{name}" for name in config()["secrets"]
    }
    assert "secrets/postgres_password" in _ignored(["secrets/postgres_password", ".env"])
    assert _secrets("flower") == {"redis_password", "flower_password"}
    assert "SOSTENUTO_DATABASE_URL" not in _service("flower")["environment"]


def _secrets(name: str) -> set[str]:
    return {found["source"] if isinstance(found, dict) else found for found in _service(name)["secrets"]}


def _ignored(names: list[str]) -> str:
    return subprocess.run(
        ["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("name", sorted(OURS))
def test_the_program_takes_what_the_file_gives_it(name: str, tmp_path: Path) -> None:
    """Settings that are unknown, or a command that is not there, would be found by the operator."""
    given = {variable: str(value) for variable, value in _service(name)["environment"].items()}
    for variable, value in given.items():
        if variable.endswith("_FILE"):
            file = tmp_path / Path(value).name
            file.write_text("a-secret/of-its-own\n", encoding="utf-8")
            given[variable] = str(file)
    settings = load_settings(given, tmp_path)
    assert settings.broker_url == "redis://:a-secret%2Fof-its-own@redis:6379/0"
    assert settings.uses_sqlite is (name == "flower")
    command = _service(name)["command"]
    words = shlex.split(command) if isinstance(command, str) else command
    checks = [words]
    if _service(name).get("healthcheck", {}).get("test", [""])[1:2] == ["sostenuto"]:
        checks.append(_service(name)["healthcheck"]["test"][2:])
    for arguments in checks:
        ran = CliRunner().invoke(command_tree(), [*arguments, "--help"])
        assert ran.exit_code == 0, ran.output
        assert "Usage" in ran.output


def test_it_migrates_before_it_works() -> None:
    assert _service("migrate")["restart"] in ("no", False)
    for name in ("worker", "context", "web"):
        assert _service(name)["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert _service("worker")["stop_grace_period"] == "30s"


def test_what_the_image_copies_is_let_through_and_is_all_that_runs() -> None:
    """A folder that .dockerignore holds back breaks the build, or the program in the container."""
    instructions = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = [
        word for line in re.findall(r"^COPY (.+) \S+$", instructions, re.MULTILINE) for word in line.split()
    ]
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines[1] == "*"
    let_through = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert [name for name in copied if not any(fnmatch.fnmatch(name, found) for found in let_through)] == []
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert set(copied) >= {"jobs", "worker", "storage", "sostenuto", "pyproject.toml", "README.md"}
    user = re.findall(r"^USER (\S+)", instructions, re.MULTILINE)
    assert user == ["sostenuto"]
