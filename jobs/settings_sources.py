"""Settings from the environment over an optional `sostenuto.yaml`; every error names the place that was wrong.

Precedence: environment, then the file (SOSTENUTO_CONFIG, else `sostenuto.yaml` in the current folder), then defaults.
An empty variable counts as not set. Relative paths are relative to the file they stand in, or to the current folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from jobs.documents import Document, DocumentError, Place, known_keys, model_problems, read_document
from jobs.errors import ConfigurationError, did_you_mean
from jobs.secret_files import SUFFIX, read_secret
from jobs.settings import Settings

PREFIX = "SOSTENUTO_"
CONFIG_FILE = "sostenuto.yaml"
_NAMED = {"openai_api_key": "OPENAI_API_KEY", "openai_base_url": "OPENAI_BASE_URL"}
_PATHS: frozenset[Place] = frozenset(
    {("data_dir",), ("pieces_dir",), ("prompts_dir",), ("context", "base_dir")}
)

# Each of these may stand in a file instead, which the variable with _FILE at its end names.
FROM_FILES = (
    "SOSTENUTO_DATABASE_URL",
    "SOSTENUTO_DATABASE_PASSWORD",
    "SOSTENUTO_BROKER_URL",
    "SOSTENUTO_BROKER_PASSWORD",
    "SOSTENUTO_FLOWER_PASSWORD",
    "OPENAI_API_KEY",
)

# Variables with the prefix that are not settings.
OTHER_VARIABLES = {
    "SOSTENUTO_CONFIG": "the configuration file, instead of sostenuto.yaml in the current folder",
    "SOSTENUTO_DEBUG": "1: commands show the traceback of an error",
    "SOSTENUTO_URL": "for the Python client: where the HTTP API is",
    "SOSTENUTO_TOKEN": "for the Python client: its API token",
    "SOSTENUTO_CRASH_POINT": "tests only: where a worker kills itself",
}


def load_settings(environ: Mapping[str, str] | None = None, folder: Path | None = None) -> Settings:
    """Read and check all settings. Raises ConfigurationError: one line, naming variable or file and line."""
    environ = os.environ if environ is None else environ
    folder = (folder or Path.cwd()).absolute()
    sources = _Sources(environ, folder)
    data = sources.merged()
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        place, sentence = next(model_problems(Settings, error))
        raise sources.bad_value(place, sentence) from None


def variables() -> dict[str, Place]:
    """Each environment variable and the place of its setting."""
    return {
        _NAMED.get(str(place[0])) or PREFIX + "_".join(map(str, place)).upper(): place
        for place, _ in fields()
    }


def fields(model: type[BaseModel] = Settings, above: Place = ()) -> Iterator[tuple[Place, FieldInfo]]:
    """Every single setting, groups opened."""
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from fields(annotation, (*above, name))
        else:
            yield (*above, name), field


class _Sources:
    """What was set where, so that an error can say so."""

    def __init__(self, environ: Mapping[str, str], folder: Path) -> None:
        self.environ = {
            name: value
            for name, value in environ.items()
            if value and (name.startswith(PREFIX) or name.removesuffix(SUFFIX) in _NAMED.values())
        }
        self.folder = folder
        self._read_files()
        self.file = self._config_file()
        self.document = self._read(self.file) if self.file else Document({}, {})

    def _read_files(self) -> None:
        """Puts what files hold in the place of the variables that name them."""
        for name in FROM_FILES:
            if path := self.environ.pop(name + SUFFIX, None):
                if name in self.environ:
                    raise ConfigurationError(f"{name} and {name}{SUFFIX} are both set: only one can be")
                self.environ[name] = read_secret(name + SUFFIX, str(self.folder / path))

    def _config_file(self) -> Path | None:
        named = self.environ.get("SOSTENUTO_CONFIG")
        if named:
            return self.folder / Path(named).expanduser()
        default = self.folder / CONFIG_FILE
        return default if default.is_file() else None

    @staticmethod
    def _read(file: Path) -> Document:
        try:
            document = read_document(file)
        except OSError as error:
            reason = (error.strerror or "cannot be read").lower()
            raise ConfigurationError(f"the configuration file {file}: {reason}") from None
        except DocumentError as error:
            place = f"{file.name}:{error.line}" if error.line else file.name
            raise ConfigurationError(f"{place}: {error.problem}") from None
        if document.data is None:
            return Document({}, {})
        if not isinstance(document.data, dict):
            raise ConfigurationError(
                f"{file.name}:1: a mapping of settings is expected, such as 'data_dir: ./data'"
            )
        return document

    def merged(self) -> dict[str, Any]:
        """File below environment. Paths are made absolute against the place they were written in."""
        data: dict[str, Any] = _without_nulls(self.document.data)
        if self.file:
            for place in _PATHS | {("model",), ("database_url",)}:
                _anchor(data, place, self.file.absolute().parent)
        known = variables()
        for name, value in self.environ.items():
            if name in OTHER_VARIABLES:
                continue
            if name not in known:
                hint = did_you_mean(name, [*known, *OTHER_VARIABLES, *(name + SUFFIX for name in FROM_FILES)])
                raise ConfigurationError(f"unknown variable {name}" + (f"; {hint}" if hint else ""))
            _put(data, known[name], value)
            _anchor(data, known[name], self.folder)
        data.setdefault("data_dir", str(self.folder / "sostenuto-data"))
        return data

    def bad_value(self, place: Place, sentence: str) -> ConfigurationError:
        """The one-line error for a problem at a place: who set it, to what, and what is allowed."""
        field = dict(fields()).get(place)
        variable = next((name for name, known in variables().items() if known == place[: len(known)]), "")
        if variable in self.environ:
            where, value = variable, self.environ[variable]
            if not field:  # a place inside of the variable's JSON or list
                return ConfigurationError(f"{where}: {sentence}")
        else:
            line, _ = self.document.position(place)
            where, value = (
                f"{self.file.name if self.file else CONFIG_FILE}:{line}",
                _value_at(self.document.data, place),
            )
            if not field:
                return ConfigurationError(f"{where}: {sentence}", hint=_known_hint(place, sentence))
            where = f"{where}: {'.'.join(map(str, place))}"
        wanted = sentence if "allowed is" in sentence or "; did you mean" in sentence else allowed(field)
        return ConfigurationError(f"{where} {_shown(place, field, value)}: {wanted}")


def _known_hint(place: Place, sentence: str) -> str | None:
    """All keys of a group, where none was near enough to suggest."""
    if not sentence.startswith("unknown key") or "did you mean" in sentence:
        return None
    return "allowed are: " + ", ".join(known_keys(Settings, place[:-1]))


def _shown(place: Place, field: FieldInfo | None, value: Any) -> str:
    """`is 'value'`, or words that give nothing of a secret away."""
    if field is None or field.annotation == SecretStr | None or place[0] == "mcp":
        return "cannot be used"
    text = str(value)
    if str(place[-1]).endswith("_url"):
        text = text.partition("?")[0]
        if "@" in text:
            scheme, separator, _ = text.rpartition("@")[0].partition("://")
            text = f"{scheme + separator if separator else ''}***@{text.rpartition('@')[2]}"
    return f"is {text if len(text) <= 100 else text[:100] + '…'!r}"


def allowed(field: FieldInfo | None) -> str:
    """What a setting may be, in words."""
    annotation: Any = field.annotation if field else str
    if get_origin(annotation) is dict:
        return "allowed is a mapping; in the environment the same as JSON"
    if get_origin(annotation) is tuple:
        return "allowed is a list of names; in the environment with commas between them"
    options = [part for part in get_args(annotation) if part is not type(None)]
    metadata = list(field.metadata) if field else []
    if get_origin(annotation) is not Literal and options:
        annotation = options[0]
    if get_origin(annotation) is Annotated:
        annotation, *extra = get_args(annotation)
        metadata += extra
    if get_origin(annotation) is Literal:
        return "allowed is " + " or ".join(map(str, get_args(annotation)))
    if annotation is bool:
        return "allowed is true or false"
    if annotation in {int, float}:
        return ("allowed is a whole number" if annotation is int else "allowed is a number") + _range(
            metadata
        )
    return "allowed is a path" if annotation is Path else "allowed is a text that is not empty or too long"


def _range(metadata: list[Any]) -> str:
    flat = [item for entry in metadata for item in getattr(entry, "metadata", [entry])]
    low = next((f" from {item.ge:,}" for item in flat if isinstance(item, Ge)), "")
    low = low or next((f" above {item.gt:,}" for item in flat if isinstance(item, Gt)), "")
    high = next((f" to {item.le:,}" for item in flat if isinstance(item, Le)), "")
    return low + high


def _without_nulls(data: Any) -> Any:
    """A key without a value in YAML means the default, as does a key left out."""
    if isinstance(data, dict):
        return {key: _without_nulls(value) for key, value in data.items() if value is not None}
    return data


def _value_at(data: Any, place: Place) -> Any:
    for part in place:
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _put(data: dict[str, Any], place: Place, value: str) -> None:
    *groups, name = (str(part) for part in place)
    for group in groups:
        inner = data.get(group)
        data[group] = data = dict(inner) if isinstance(inner, dict) else {}
    data[name] = value


def _anchor(data: dict[str, Any], place: Place, folder: Path) -> None:
    """Make a relative path, script or SQLite file absolute against the folder it was written for."""
    value = _value_at(data, place)
    if not isinstance(value, str):
        return
    if place in _PATHS:
        _put(data, place, str(folder / Path(value).expanduser()))
    elif place == ("model",) and value.startswith("scripted:"):
        script = Path(value.removeprefix("scripted:")).expanduser()
        _put(data, place, f"scripted:{folder / script}")
    elif (
        place == ("database_url",) and value.startswith("sqlite:///") and not value.startswith("sqlite:///:")
    ):
        file = urlsplit(value).path.removeprefix("/")
        if file:
            _put(data, place, f"sqlite:///{folder / Path(file).expanduser()}")
