"""The conversion of parsed YAML to a `Config`: pydantic's errors and the cross-checks become problems
with a line and a remedy.

The models of schemas/config/model.py contain only what is built. For values that a later version will
accept (`NOT_YET`), the problem is "not in this version" instead of "not known", and the reference lists
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from schemas.config import yaml_lines
from schemas.config.changes.text import ConfigText
from schemas.config.checks import ValidParts, check_across_parts
from schemas.config.model import (
    ColumnsConfig,
    Config,
    ConfigErrors,
    CoordinationConfig,
    CoordinationTls,
    KafkaConfig,
    KafkaTargetConfig,
    PipelineConfig,
    RenameConfig,
    Route,
    SourceConfig,
    TargetConfig,
    TlsConfig,
    TopicConfig,
)
from schemas.config.secrets import PlacedSecret
from schemas.config.servers import find_target_model
from schemas.config.spark import SparkConfig, SparkDriverConfig

#: (section, key) → the values that a later version will accept.
NOT_YET: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("sources", "type"): ("tdsql",),
    ("sources", "topics"): ("source",),
    ("sources", "events"): ("tdsql-json",),
    ("targets", "type"): ("tdsql",),
    ("pipelines", "consistency"): ("transaction",),
}

#: Value of a later version → what this version lacks for it, where parts of it exist.
_LACKING: Mapping[str, str] = {
    "tdsql-json": "it knows the messages of the subscription, and reads neither their topic nor the tables' "
    "definitions (see `rowlock docs tdsql`)",
}


def _is_not_yet(place: tuple[str, ...], value: object) -> bool:
    """Return whether `value` at the key `place` ("sources", "branch1", "type") is valid only in a later
    version.
    """
    return len(place) == 3 and value in NOT_YET.get((place[0], place[-1]), ())


M = TypeVar("M", bound=BaseModel)

_SECTIONS: dict[str, type[BaseModel]] = {
    "sources": SourceConfig,
    "targets": TargetConfig,
    "pipelines": PipelineConfig,
}


def build_config(
    file: Path,
    text: str,
    env: Mapping[str, str],
    changes: Mapping[tuple[str, ...], str] | None = None,
    read_secret: Callable[[str], str] | None = None,
) -> Config:
    """Return the Config of `text`, with `changes` of single values by place. Raises ConfigErrors with
    all problems.

    `read_secret`: returns the text of a file that the configuration names, or raises OSError (default:
    reads the file).
    """
    read, secrets = read_secret or _make_secret_reader(file), dict[str, str]()

    def note_secret(name: str) -> str:
        secrets[name] = found = read(name)
        return found

    document = yaml_lines.parse_yaml(text, env, note_secret)
    if document.data is None:
        raise ConfigErrors(str(file), document.problems)
    for place, value in (changes or {}).items():
        _change_value(document.data, place, value)
        document.forget_origin(place)
    config = _validate_document(document)
    check_across_parts(_collect_valid_parts(document.data), document)
    if document.problems or config is None:
        raise ConfigErrors(str(file), document.problems)
    config = _make_paths_absolute(config, file, document.lines)
    _place_passwords("sources", config.sources, document, file.parent)
    _place_passwords("targets", config.targets, document, file.parent)
    for target in config.targets.values():
        if isinstance(target, KafkaTargetConfig):
            target._lease_s = config.coordination.lease_s
    config._made_of = ConfigText(str(file.absolute()), text, secrets, tuple((changes or {}).items()))
    return config


def _place_passwords(
    part: str, servers: dict[str, M], document: yaml_lines.YamlDocument, folder: Path
) -> None:
    for name, server in servers.items():
        servers[name] = _place_password(server, _describe_origin(document, (part, name, "password"), folder))


def _place_password(server: M, place: str) -> M:
    """Return the server with a password that knows where it was read from; "": it is in the file itself."""
    password = getattr(server, "password", None)
    if not place or not isinstance(password, SecretStr):
        return server
    return server.model_copy(update={"password": PlacedSecret(password.get_secret_value(), place)})


def _describe_origin(document: yaml_lines.YamlDocument, path: tuple[str, ...], folder: Path) -> str:
    if path in document.secret_files:
        return f"the file {folder / document.secret_files[path]}"
    return f"the environment variable {document.variables[path]}" if path in document.variables else ""


def _make_secret_reader(file: Path) -> Callable[[str], str]:
    here = file.absolute().parent
    return lambda name: (here / name).read_text(encoding="utf-8")


def _change_value(data: Any, place: tuple[str, ...], value: str) -> None:
    for name in place[:-1]:
        if not isinstance(data, dict):
            return  # a file of another shape, which the validation reports
        data = data.setdefault(name, {})
    if isinstance(data, dict):
        data[place[-1]] = value


def _make_paths_absolute(config: Config, file: Path, lines: dict[tuple[str, ...], int]) -> Config:
    here = file.absolute().parent
    state_dir = (here / config.state_dir.expanduser()).resolve()
    # An update counts as set, and whether the file has a coordination section decides where a run
    # listens.
    given = {"coordination"} & config.model_fields_set
    config = config.model_copy(
        update={
            "state_dir": state_dir,
            **{name: _make_tls_paths_absolute(getattr(config, name), here) for name in given},
            **({"spark": _make_files_absolute(config.spark, here)} if config.spark.is_cluster else {}),
            "sources": {name: _make_tls_paths_absolute(each, here) for name, each in config.sources.items()},
            "targets": {name: _make_tls_paths_absolute(each, here) for name, each in config.targets.items()},
        }
    )
    config._path = file.absolute()
    config._lines = lines
    return config


def _make_tls_paths_absolute(section: M, here: Path) -> M:
    """Return the section with absolute paths in its `tls`."""
    tls: BaseModel | None = getattr(section, "tls", None)
    if tls is None:
        return section
    return section.model_copy(update={"tls": _make_files_absolute(tls, here)})


def _make_files_absolute(section: M, here: Path) -> M:
    """Return the section with absolute paths."""
    files = {name: here / value.expanduser() for name, value in section if isinstance(value, Path)}
    return section.model_copy(update=files)


def _validate_document(document: yaml_lines.YamlDocument) -> Config | None:
    try:
        return Config.model_validate(document.data)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=True):
            _add_problem(document, detail)
        return None


def _add_problem(document: yaml_lines.YamlDocument, detail: ErrorDetails) -> None:
    path = tuple(str(part) for part in detail["loc"] if part != "[key]")
    if any(problem.place == ".".join(path) for problem in document.problems):
        return  # the cause was named already (an unset variable also fails validation)
    seen, right = _explain_detail(detail, path, hidden=path in document.hidden)
    document.add_problem(path, seen, right)


def _explain_detail(detail: ErrorDetails, path: tuple[str, ...], *, hidden: bool) -> tuple[str, str]:
    kind, context = detail["type"], detail.get("ctx", {})
    shown = "the value" if hidden else _show_value(detail.get("input"))
    if kind == "missing":
        return _explain_missing_key(path)
    if kind == "extra_forbidden":
        return f"unknown key {path[-1]!r}", _propose_key(path)
    if kind == "literal_error":
        return _explain_unknown_value(detail, path, shown)
    return f"{shown} does not fit", _describe_expected(kind, context) or str(detail["msg"])


def _explain_unknown_value(detail: ErrorDetails, path: tuple[str, ...], shown: str) -> tuple[str, str]:
    expected = str(detail.get("ctx", {})["expected"])
    if _is_not_yet(path, detail.get("input")):
        lacking = _LACKING.get(str(detail.get("input")))
        why = "" if lacking is None else f": {lacking}"
        return f"{shown} is not supported in this version of rowlock{why}", f"use {expected}"
    return f"{shown} is not known", f"one of {expected.replace(' or ', ', ')}"


def _explain_missing_key(path: tuple[str, ...]) -> tuple[str, str]:
    name = path[-1]
    if name == "password":
        return "'password' is missing", "give password: ${NAME} or password_file: FILE"
    return f"{name!r} is missing", f"add {name}: {_describe_key(path)}"


def _describe_expected(kind: str, context: Mapping[str, Any]) -> str:
    texts = {
        "int_parsing": "a whole number",
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_parsing": "a number",
        "float_type": "a number",
        "string_type": "text (in quotes where YAML reads something else)",
        "string_too_short": "text that is not empty",
        "bool_parsing": "true or false",
        "bool_type": "true or false",
        "list_type": "a list",
        "dict_type": "a mapping of names",
        "model_type": "a mapping of keys",
        "model_attributes_type": "a mapping of keys",
        "path_type": "a path",
        "too_short": "at least one entry",
        "greater_than_equal": "a number of at least {ge}",
        "less_than_equal": "a number of at most {le}",
        "string_pattern_mismatch": "text of the form {pattern}",
    }.get(kind, "")
    return texts.format(**context)


def _show_value(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "nothing" if value is None else repr(value)


def _find_model(path: tuple[str, ...]) -> type[BaseModel]:
    """Return the model that has the last element of `path` as a key."""
    model: type[BaseModel] = Config
    if len(path) >= 3 and path[0] in _SECTIONS:
        model = _SECTIONS[path[0]]
        path = path[2:]
    for part in path[:-1]:
        model = _find_nested_model(model, part)
    return model


def _find_nested_model(model: type[BaseModel], key: str) -> type[BaseModel]:
    nested: tuple[tuple[str, type[BaseModel]], ...] = (
        ("kafka", KafkaConfig),
        ("coordination", CoordinationConfig),
        ("spark", SparkConfig),
        ("driver", SparkDriverConfig),
        ("tls", CoordinationTls if model is CoordinationConfig else TlsConfig),
        ("routes", Route),
    )
    if model is Route and key == "kafka":
        return TopicConfig
    if model is Route and key == "rename":
        return RenameConfig
    if model is SourceConfig and key == "columns":
        return ColumnsConfig
    return next((found for name, found in nested if name == key), model)


def _list_keys(model: type[BaseModel]) -> dict[str, str]:
    return {field.alias or name: field.description or "" for name, field in model.model_fields.items()}


def _describe_key(path: tuple[str, ...]) -> str:
    known = _list_keys(_find_model(path))
    if path[0] == "targets":
        known = _list_keys(KafkaTargetConfig) | known
    return known.get(path[-1], "") or "a value"


def _propose_key(path: tuple[str, ...]) -> str:
    keys = list(_list_keys(_find_model(path)))
    close = get_close_matches(path[-1].lower(), keys, n=1)
    known = ", ".join(keys)
    return f"did you mean {close[0]!r}?" if close else f"known here: {known}"


def _collect_valid_parts(data: Any) -> ValidParts:
    """Collect the parts that are valid on their own, so that cross-checks run although something else
    is wrong.
    """
    sections = {name: _get_section(data, name) for name in _SECTIONS}
    kafka = data.get("kafka") if isinstance(data, dict) else None
    return ValidParts(
        kafka=_validate_leniently(KafkaConfig, kafka),
        coordination=_validate_leniently(CoordinationConfig, _get_section(data, "coordination")),
        spark=_validate_leniently(SparkConfig, _get_section(data, "spark")),
        names={name: list(section) for name, section in sections.items()},
        sources=_validate_section(SourceConfig, sections["sources"]),
        targets=_validate_targets(sections["targets"]),
        pipelines=_validate_section(PipelineConfig, sections["pipelines"]),
    )


def _get_section(data: Any, name: str) -> dict[str, Any]:
    section = data.get(name) if isinstance(data, dict) else None
    return section if isinstance(section, dict) else {}


def _validate_leniently(model: type[M], raw: object) -> M | None:
    """Validate `raw`, if necessary without its invalid keys; their problems are already known."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        wrong = {str(detail["loc"][0]) for detail in error.errors() if detail["loc"]}
    if not isinstance(raw, dict):
        return None
    try:
        return model.model_validate({key: value for key, value in raw.items() if key not in wrong})
    except ValidationError:
        return None


def _validate_section(model: type[M], section: dict[str, Any]) -> dict[str, M]:
    tried = {name: _validate_leniently(model, raw) for name, raw in section.items()}
    return {name: one for name, one in tried.items() if one is not None}


def _validate_targets(section: dict[str, Any]) -> dict[str, TargetConfig]:
    tried = {name: _validate_leniently(find_target_model(raw), raw) for name, raw in section.items()}
    return {name: one for name, one in tried.items() if one is not None}
