"""Settings: precedence, defaults, and errors of one line that name the place and never a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.errors import ConfigurationError
from jobs.model_settings import EndpointSettings
from jobs.settings import Settings
from jobs.settings_sources import FROM_FILES, OTHER_VARIABLES, allowed, fields, load_settings, variables


def test_defaults_need_nothing_and_are_absolute(tmp_path: Path) -> None:
    settings = load_settings({}, tmp_path)
    assert settings.data_dir == tmp_path / "sostenuto-data"
    assert settings.database_url == f"sqlite:///{tmp_path}/sostenuto-data/sostenuto.db"
    assert settings.pieces_dir == tmp_path / "sostenuto-data" / "pieces"
    assert settings.contexts_dir == tmp_path / "sostenuto-data" / "contexts"
    assert settings.embedded_broker
    assert settings.secrets() == []
    assert (settings.lease_seconds, settings.slice_seconds, settings.slice_steps) == (15, 60, 200)
    assert (settings.concurrency, settings.max_attempts, settings.owner) == (50, 5, "local")


def test_environment_wins_over_the_file_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "sostenuto.yaml").write_text(
        "concurrency: 3\ncontext:\n  compression:\n    keep_recent: 7\n    min_to_compress: 2\n",
        encoding="utf-8",
    )
    settings = load_settings({"SOSTENUTO_CONTEXT_COMPRESSION_KEEP_RECENT": "20"}, tmp_path)
    assert settings.concurrency == 3
    assert settings.context.compression.keep_recent == 20
    assert settings.context.compression.min_to_compress == 2


def test_relative_paths_belong_to_the_file_they_stand_in(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "my.yaml").write_text(
        "data_dir: data\nmodel: scripted:replies.yaml\ndatabase_url: sqlite:///jobs.db\n"
        "context:\n  base_dir: archive\n",
        encoding="utf-8",
    )
    environ = {"SOSTENUTO_CONFIG": "etc/my.yaml", "SOSTENUTO_PIECES_DIR": "pieces"}
    settings = load_settings(environ, tmp_path)
    assert settings.data_dir == folder / "data"
    assert settings.model == f"scripted:{folder}/replies.yaml"
    assert settings.database_url == f"sqlite:///{folder}/jobs.db"
    assert settings.contexts_dir == folder / "archive"
    assert settings.pieces_dir == tmp_path / "pieces"


def test_an_empty_variable_and_an_empty_key_mean_the_default(tmp_path: Path) -> None:
    (tmp_path / "sostenuto.yaml").write_text("concurrency:\ncontext:\n", encoding="utf-8")
    settings = load_settings({"SOSTENUTO_BROKER_URL": "", "OPENAI_API_KEY": ""}, tmp_path)
    assert (settings.concurrency, settings.broker_url, settings.openai_api_key) == (50, None, None)


@pytest.mark.parametrize("content", ["", "# nothing but a comment\n"])
def test_an_empty_file_is_no_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "sostenuto.yaml").write_text(content, encoding="utf-8")
    assert load_settings({}, tmp_path).concurrency == 50


def test_foreign_variables_are_left_alone(tmp_path: Path) -> None:
    load_settings({"SOSTENUTOX": "1", "PATH": "/bin", "OPENAI_ORGANIZATION": "x"}, tmp_path)


BAD_VARIABLES = [
    ("SOSTENUTO_CONCURRENCY", "abc", "is 'abc': allowed is a whole number from 1 to 1,000"),
    ("SOSTENUTO_CONCURRENCY", "0", "is '0': allowed is a whole number from 1 to 1,000"),
    ("SOSTENUTO_LEASE_SECONDS", "nan", "is 'nan': allowed is a number from 0.2 to 3,600"),
    ("SOSTENUTO_BUDGET_MAX_COST", "-1", "is '-1': allowed is a number above 0 to 1,000,000,000.0"),
    ("SOSTENUTO_ALLOW_UNSANDBOXED", "maybe", "is 'maybe': allowed is true or false"),
    ("SOSTENUTO_SANDBOX_MIN", "docker", "is 'docker': allowed is bwrap or landlock"),
    (
        "SOSTENUTO_TIME_ZONE",
        "Mars/Base",
        "is 'Mars/Base': allowed is an IANA name such as Europe/Paris or UTC",
    ),
    ("SOSTENUTO_TIME_ZONE", "../etc", "is '../etc': allowed is an IANA name such as Europe/Paris or UTC"),
    ("SOSTENUTO_DATABASE_URL", "jobs.db", "is 'jobs.db': allowed is a URL such as postgresql://HOST/NAME"),
    ("SOSTENUTO_DATABASE_URL", "mysql://h/x", "the scheme 'mysql' is unknown; allowed is a URL such as"),
    ("SOSTENUTO_DATABASE_URL", "postgrsql://h/x", "is unknown; did you mean 'postgresql'?"),
    ("SOSTENUTO_DATABASE_URL", "sqlite://jobs.db", "with three slashes"),
    ("SOSTENUTO_DATABASE_URL", "sqlite://", "a database in memory cannot be shared"),
    ("SOSTENUTO_DATABASE_URL", "sqlite:///:memory:", "a database in memory cannot be shared"),
    ("SOSTENUTO_DATABASE_URL", "postgresql://h:port/x", "the host or port cannot be read"),
    ("SOSTENUTO_BROKER_URL", "reddis://h", "is unknown; did you mean 'redis'?"),
    ("SOSTENUTO_BROKER_URL", "localhost:6379", "allowed is a URL such as redis://HOST:6379/0"),
    ("OPENAI_BASE_URL", "https:///v1", "allowed is a URL with a host"),
    ("OPENAI_BASE_URL", "ftp://host/v1", "the scheme 'ftp' is unknown"),
]


@pytest.mark.parametrize(("variable", "value", "expected"), BAD_VARIABLES)
def test_a_bad_variable_is_named_with_its_value_and_what_is_allowed(
    tmp_path: Path, variable: str, value: str, expected: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings({variable: value}, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{variable} is ")
    assert expected in message
    assert "\n" not in message
    assert caught.value.exit_code == 2


def test_prices_are_the_same_in_the_file_and_as_json(tmp_path: Path) -> None:
    (tmp_path / "sostenuto.yaml").write_text(
        "prices:\n  gpt-5*: {input: 1.25, output: 10, cached_input: 0.125}\n  local/*: {input: 0, output: 0}\n",
        encoding="utf-8",
    )
    written = load_settings({}, tmp_path).prices
    assert list(written) == ["gpt-5*", "local/*"]  # in the order written: the first that fits counts
    as_json = {model: price.model_dump() for model, price in written.items()}
    assert load_settings({"SOSTENUTO_PRICES": json.dumps(as_json)}, tmp_path / "elsewhere").prices == written


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("gpt-5", "SOSTENUTO_PRICES is 'gpt-5': allowed is JSON such as"),
        ("[]", "SOSTENUTO_PRICES is '[]': allowed is a mapping"),
        (
            '{"a": {"input": -1, "output": 1}}',
            "SOSTENUTO_PRICES: 'input' should be greater than or equal to 0",
        ),
        ('{"a": {"input": NaN, "output": 1}}', "SOSTENUTO_PRICES: 'input' should be"),
        ('{"a": {"imput": 1, "output": 1}}', "unknown key 'imput'; did you mean 'input'?"),
    ],
)
def test_a_bad_price_in_the_environment_names_the_variable(tmp_path: Path, value: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings({"SOSTENUTO_PRICES": value}, tmp_path)
    assert expected in str(caught.value)


def test_hooks_are_a_list_in_the_file_and_have_commas_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "sostenuto.yaml").write_text(
        "hooks:\n  completion: [a, b, a]\n  pause: c\n", encoding="utf-8"
    )
    hooks = load_settings({"SOSTENUTO_HOOKS_PAUSE": "d, e"}, tmp_path).hooks
    assert (hooks.completion, hooks.pause) == (("a", "b"), ("d", "e"))
    with pytest.raises(ConfigurationError, match="SOSTENUTO_HOOKS_PAUSE: item 1 of 'pause'"):
        load_settings({"SOSTENUTO_HOOKS_PAUSE": "a b"}, tmp_path)


BAD_FILES = [
    ("prices:\n  gpt-5:\n    input: 1\n", "sostenuto.yaml:2: the key 'output' is missing"),
    (
        "concurrency: [1]\n",
        "sostenuto.yaml:1: concurrency is '[1]': allowed is a whole number from 1 to 1,000",
    ),
    ("\nlease_secs: 3\n", "sostenuto.yaml:2: unknown key 'lease_secs'; did you mean 'lease_seconds'?"),
    ("owner: a\nzzz: 3\n", "sostenuto.yaml:2: unknown key 'zzz'"),
    (
        "context:\n  compression:\n    token_treshold: 9\n",
        "sostenuto.yaml:3: unknown key 'token_treshold'; did you mean 'token_threshold'?",
    ),
    ("context:\n  compression: 5\n", "sostenuto.yaml:2: 'compression' should be a mapping with keys"),
    ("owner: a\nowner: b\n", "sostenuto.yaml:2: the key 'owner' is given twice"),
    ("owner: : a\n", "sostenuto.yaml:1: mapping values are not allowed here"),
    ("- owner\n", "sostenuto.yaml:1: a mapping of settings is expected, such as 'data_dir: ./data'"),
    (
        "owner: !!python/name:os.system x\n",
        "sostenuto.yaml:1: the tag 'tag:yaml.org,2002:python/name:os.system' is not",
    ),
    ("openai_api_key: [sk-hidden]\n", "sostenuto.yaml:1: openai_api_key cannot be used: allowed is a text"),
]


@pytest.mark.parametrize(("content", "expected"), BAD_FILES)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "sostenuto.yaml").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_settings({}, tmp_path)
    message = str(caught.value)
    assert message.startswith(expected)
    assert "\n" not in message
    assert "hidden" not in message


def test_unknown_keys_far_from_any_get_the_list(tmp_path: Path) -> None:
    (tmp_path / "sostenuto.yaml").write_text("context:\n  inheritance:\n    zzz: 1\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_settings({}, tmp_path)
    assert caught.value.hint == "allowed are: enabled, max_summary_tokens"


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("SOSTENUTO_CONCURENCY", "SOSTENUTO_CONCURRENCY"),
        ("SOSTENUTO_DATABSE_URL", "SOSTENUTO_DATABASE_URL"),
        ("SOSTENUTO_OPENAI_API_KEY", "OPENAI_API_KEY"),
        ("SOSTENUTO_CONFG", "SOSTENUTO_CONFIG"),
    ],
)
def test_an_unknown_variable_is_an_error_with_the_nearest_name(
    tmp_path: Path, variable: str, near: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown variable {variable}; did you mean '{near}'"):
        load_settings({variable: "value"}, tmp_path)


def test_a_named_configuration_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nope\.yaml: no such file"):
        load_settings({"SOSTENUTO_CONFIG": "nope.yaml"}, tmp_path)


SECRET_URLS = [
    ("SOSTENUTO_DATABASE_URL", "postgrsql://user:hunter2@host/db"),
    ("SOSTENUTO_DATABASE_URL", "user:hunter2@host/db"),
    ("SOSTENUTO_DATABASE_URL", "postgresql://user:hunter2@host:bad/db"),
    ("SOSTENUTO_DATABASE_URL", "postgresql://host:bad/db?password=hunter2"),
    ("SOSTENUTO_DATABASE_URL", "postgresql://user:hunter/2@host:bad/db"),
    ("SOSTENUTO_BROKER_URL", "reddis://:hunter2@host"),
    ("OPENAI_BASE_URL", "htp://user:hunter2@host"),
]


@pytest.mark.parametrize(("variable", "value"), SECRET_URLS)
def test_an_error_shows_no_password(tmp_path: Path, variable: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings({variable: value}, tmp_path)
    assert "hunter" not in f"{caught.value}{caught.value.hint}"
    assert caught.value.__suppress_context__


def test_secrets_lists_each_exact_value_and_its_decoded_form(tmp_path: Path) -> None:
    settings = load_settings(
        {
            "OPENAI_API_KEY": "sk-key",
            "SOSTENUTO_DATABASE_URL": "postgres://u:p%40ss@h/x?password=other",
            "SOSTENUTO_BROKER_URL": "redis://:brokerpass@h",
        },
        tmp_path,
    )
    assert sorted(settings.secrets()) == sorted(["sk-key", "p%40ss", "p@ss", "other", "brokerpass"])
    shown = repr(settings) + str(settings)
    assert not [secret for secret in settings.secrets() if secret in shown]
    assert settings.database_url.startswith("postgresql://u:p%40ss@h/x")


def test_secrets_come_from_files_and_are_masked_in_every_form(tmp_path: Path) -> None:
    """Also what a URL must quote, and keys that are no settings of ours."""
    for name, text in {
        "db": "p@ss/w:1\n",
        "broker": "br%oker\r\n",
        "key": "sk-key",
        "other": "sk-other\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    endpoint = EndpointSettings(base_url="https://h/v1", api_key_env="OTHER_KEY")
    assert endpoint.key({"OTHER_KEY_FILE": str(tmp_path / "other")}) == "sk-other"
    settings = load_settings(
        {
            "SOSTENUTO_DATABASE_URL": "postgresql://me@h:5432/x",
            "SOSTENUTO_DATABASE_PASSWORD_FILE": str(tmp_path / "db"),
            "SOSTENUTO_BROKER_URL": "redis://h:6379/0",
            "SOSTENUTO_BROKER_PASSWORD_FILE": "broker",  # below the folder it is started in
            "OPENAI_API_KEY_FILE": str(tmp_path / "key"),
        },
        tmp_path,
    )
    assert settings.database_url == "postgresql://me:p%40ss%2Fw%3A1@h:5432/x"
    assert settings.broker_url == "redis://:br%25oker@h:6379/0"
    assert sorted(settings.secrets()) == sorted(
        ["p@ss/w:1", "p%40ss%2Fw%3A1", "br%oker", "br%25oker", "sk-key"]
    )
    shown = repr(settings) + str(settings)
    assert not [secret for secret in settings.secrets() if secret in shown]


BAD_SECRETS = [
    ({"OPENAI_API_KEY_FILE": "nothing"}, "OPENAI_API_KEY_FILE: the file .*nothing: no such file"),
    ({"OPENAI_API_KEY_FILE": "."}, "OPENAI_API_KEY_FILE: the file .*: is a directory"),
    ({"OPENAI_API_KEY_FILE": "empty"}, "is empty"),
    ({"OPENAI_API_KEY_FILE": "large"}, "is too large for a secret"),
    ({"OPENAI_API_KEY_FILE": "binary"}, "is no text in UTF-8"),
    ({"OPENAI_API_KEY_FILE": "good", "OPENAI_API_KEY": "x"}, "OPENAI_API_KEY and OPENAI_API_KEY_FILE are both set"),
    ({"OPENAI_BASE_URL_FILE": "good"}, "unknown variable OPENAI_BASE_URL_FILE"),
    ({"SOSTENUTO_DATABASE_PASSWRD_FILE": "good"}, "did you mean 'SOSTENUTO_DATABASE_PASSWORD_FILE'"),
    ({"SOSTENUTO_DATABASE_PASSWORD_FILE": "good"}, "SOSTENUTO_DATABASE_PASSWORD cannot be used: allowed is a password only beside"),
    (
        {"SOSTENUTO_BROKER_PASSWORD_FILE": "good", "SOSTENUTO_BROKER_URL": "redis://:hunter2@h"},
        "SOSTENUTO_BROKER_PASSWORD cannot be used: allowed is one password only",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "expected"), BAD_SECRETS)
def test_a_bad_file_of_a_secret_is_named_and_not_shown(
    tmp_path: Path, environ: dict[str, str], expected: str
) -> None:
    for name, data in {
        "empty": b"\n",
        "large": b"hunter2" * 10_000,
        "binary": b"hunter2\xff",
        "good": b"hunter2",
    }.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigurationError, match=expected) as caught:
        load_settings(environ, tmp_path)
    assert "hunter" not in f"{caught.value}{caught.value.hint}"


def documented_rows() -> list[str]:
    """The table of docs/configuration.md; a failing test prints the rows to put there."""
    by_place = dict(fields())
    rows = []
    for name, place in variables().items():
        field = by_place[place]
        default = "" if field.default in (None, "", {}, ()) else f"`{str(field.default).lower()}`"
        kind = allowed(field).removeprefix("allowed is ").removesuffix(" that is not empty or too long")
        rows.append(
            f"| `{name}` | `{'.'.join(map(str, place))}` | {kind} | {default} | {field.description} |"
        )
    return rows


def test_every_setting_is_in_the_documentation_as_it_is() -> None:
    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert [row for row in documented_rows() if row not in text] == []
    assert [name for name in OTHER_VARIABLES if f"`{name}`" not in text] == []
    assert [name for name in FROM_FILES if f"`{name}_FILE`" not in text] == []


def test_settings_built_directly_have_the_same_defaults(tmp_path: Path) -> None:
    assert Settings(data_dir=tmp_path / "sostenuto-data") == load_settings({}, tmp_path)
