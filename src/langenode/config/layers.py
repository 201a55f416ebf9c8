"""From what a user wrote to a checked record: layers merged from general to particular, TOML, overrides, hints.

Layers are defaults, the experiment's, the method's and target's, the user's file, `--set`; the result is checked once.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from langenode.config.records import Config, MethodOptions, Section

# Parsing time grows with the square of a line's length.
MOST_BYTES, LONGEST_LINE, MOST_NESTED = 100_000, 10_000, 16


class ConfigError(ValueError):
    """What must hold of the configuration, what was found and what to do."""


ConfigType = TypeVar("ConfigType", bound=Config)


def resolve(kind: type[ConfigType], *layers: Mapping[str, Any]) -> ConfigType:
    """Merge layers, later ones winning, and check the result."""
    try:
        return kind.model_validate(merge_all(layers))
    except pydantic.ValidationError as error:
        raise ConfigError(_first_problem(kind, error)) from None


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested mappings into one, the second winning key by key."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def merge_all(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Nested mappings into one, later ones winning."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = merge(merged, layer)
    return merged


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a nested mapping."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"a configuration must have at most {MOST_BYTES} bytes; {path} has more; shorten it")
        text = path.read_text(encoding="utf-8")
        if max(map(len, text.splitlines()), default=0) > LONGEST_LINE:
            raise ConfigError(
                f"lines of a configuration must have at most {LONGEST_LINE} letters; {path} has longer ones"
            )
        return tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"a configuration file must exist; there is no {path}; check the name") from None
    except OSError as error:
        raise ConfigError(f"a configuration file must be readable; {path}: {error.strerror}; check it") from None
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:  # also of text that is not UTF-8, and of numbers of many digits
        raise ConfigError(f"a configuration file must be TOML; {path} is not ({error}); correct it") from None


def to_toml(config: Config) -> str:
    """A resolved configuration as TOML; what is None is left out where that is its default, else the word none."""
    import tomli_w

    text = tomli_w.dumps(_without_nulls(config))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = text[error.start - 20 : error.end + 20]
        raise ConfigError(f"a configuration must be UTF-8 text; found {found!a}; rename the file or column") from None
    return text


def _without_nulls(section: Section) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in section.model_dump(mode="json").items():
        inner = getattr(section, key)
        if isinstance(inner, MethodOptions) and key != getattr(section, "method", key) and inner == type(inner)():
            continue  # another method's, as they are by default
        if isinstance(inner, Section):
            kept[key] = _without_nulls(inner)
        elif value is not None:
            kept[key] = value
        elif type(section).model_fields[key].default is not None:
            kept[key] = "none"
    return kept


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """`["a.b=1", "c=[8]"]` as a nested mapping; the values are TOML, or plain text where that fails."""
    merged: dict[str, Any] = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        keys = [key.strip() for key in name.split(".")]
        if not equals or not all(keys) or len(keys) > MOST_NESTED or len(text) > LONGEST_LINE:
            raise ConfigError(
                f"an override must read section.key=value; got {text[:200]!r}; e.g. training.num_updates=500"
            )
        nested: Any = _toml_value(value.strip())
        for key in reversed(keys):
            nested = {key: nested}
        merged = merge(merged, nested)
    return merged


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, KeyError):
        return text
    except RecursionError:
        raise ConfigError(f"a value must be plain; got one nested too deeply, {text[:40]!r}; shorten it") from None


def _first_problem(kind: type[Config], error: pydantic.ValidationError) -> str:
    """One line for the first thing that is wrong, with the nearest key for a misspelt one."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    name = ".".join(location)
    if first["type"] == "value_error":
        return first["msg"].removeprefix("Value error, ")
    if first["type"] != "extra_forbidden":
        return f"{name}: {first['msg'].lower()}; got {shortened(first['input'])}; change it"
    if name in ("sampler", "draws") or location[0] in ("sampler", "draws"):
        return f"options of a method stand in its own section; got {name}; write METHOD.KEY, e.g. langevin.num_steps"
    keys = _keys_at(kind, location[:-1])
    near = difflib.get_close_matches(location[-1], keys, n=1)
    hint = f"did you mean {'.'.join([*location[:-1], near[0]])}?" if near else f"known keys here: {', '.join(keys)}"
    return f"a configuration key must be known; there is no {name}; {hint}"


def shortened(value: Any, longest: int = 100) -> str:
    """A value for a message, quoted."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of many digits, or nested too deeply
        return f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= longest else f"{text[:longest]}..."


def _keys_at(kind: type[pydantic.BaseModel], location: Sequence[str]) -> list[str]:
    for key in location:
        annotation = kind.model_fields[key].annotation
        assert isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)
        kind = annotation
    return list(kind.model_fields)
