"""From a validation error to one sentence for a person: the path as it is written, and what would be right."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from hummingbird_operator.errors import Invalid

_SHOWN = 3
_VALUE_LIMIT = 60
_HIDDEN = "(value not shown)"
_NAME_OF = f"the NAME of an environment variable, not the secret itself {_HIDDEN}"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KNOWN_SECRET = re.compile(
    r"(?<![\w/.-])(gl(pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|soat|oas|ffct)-|whsec_|AIza|gh[opusr]_|github_pat_|sk-(?=[\w-]{12})"
    r"|A[KS]IA(?=[A-Z0-9]{16})|ya29\.|xox[a-z]-|eyJ(?=[\w-]{12})|-----BEGIN)[\w+/=.-]*"
)
_COMMIT = re.compile(r"[0-9a-f]+")
_RANDOM = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9].*[0-9])[A-Za-z0-9]{20,}|(?=.*[0-9])[0-9a-f]{32,}")


def looks_secret(text: str) -> bool:
    """Whether a text has the form of a token or key: such a one is never written, not even as a wrong value."""
    return _KNOWN_SECRET.search(text) is not None or _RANDOM.fullmatch(text) is not None


def masked(text: str) -> str:
    """A sentence without the tokens and keys of known form that stand in it."""
    return _KNOWN_SECRET.sub(_HIDDEN, text)


def env_name(value: object) -> str:
    """The name of an environment variable. People paste the secret itself here: what is refused is not shown."""
    if not isinstance(value, str) or not _ENV_NAME.fullmatch(value) or looks_secret(value):
        raise PydanticCustomError("secret_name", "must be {what}", {"what": _NAME_OF})
    return value


def secret_path(value: object) -> object:
    """The path of a file with a secret, looked at for the same mistake."""
    if isinstance(value, str) and looks_secret(value):
        raise PydanticCustomError("secret_path", f"must be the PATH of a file, not the secret itself {_HIDDEN}")
    return value


def not_yaml(error: yaml.YAMLError) -> str:
    """What is wrong and where, on one line; never the text around it, which may be a secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        alias = "alias" in f"{error.problem} {error.context}"
        hint = "; a text that begins with * must stand in quotes" if alias else ""
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem or error.context}{hint}"
    if isinstance(error, yaml.reader.ReaderError):
        return f"character {error.position + 1}: {error.reason}"
    return "it cannot be parsed"


def invalid(model: type[BaseModel], error: ValidationError, where: str) -> Invalid:
    """One error that names the first problem's path in `where`, and up to two more in its text."""
    found = [(_path(where, one["loc"]), _problem(model, one)) for one in error.errors(include_url=False)]
    path, problem = found[0]
    also = "".join(f"; {other}: {text}" for other, text in found[1:_SHOWN])
    hidden = len(found) - _SHOWN
    rest = f"; and {hidden} more" if hidden > 0 else ""
    return Invalid(path, problem + also + rest)


def _path(where: str, loc: Sequence[int | str]) -> str:
    path = where
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]":  # pydantic's mark for the key of a map, which stands before it
            part = "…" if looks_secret(part) else part
            path += f".{part}" if path else part
    return path or "the object"


def _problem(model: type[BaseModel], error: ErrorDetails) -> str:
    kind = error["type"]
    if kind == "extra_forbidden":
        return _unknown_key(model, error["loc"])
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == "tuple_type":
        return _no_list(error)
    if kind in _SENTENCES:
        return _SENTENCES[kind].format(**_details(error)) + _instead(error)
    return error["msg"][:1].lower() + error["msg"][1:]


_SENTENCES = {
    "missing": "is required",
    "string_too_long": "has {length} characters, at most {max_length} are allowed",
    "string_too_short": "has {length} characters, at least {min_length} must be there",
    "too_long": "has {actual_length} items, at most {max_length} are allowed",
    "greater_than_equal": "must be at least {ge}, not {value}",
    "less_than_equal": "must be at most {le}, not {value}",
    "greater_than": "must be more than {gt}, not {value}",
    "string_pattern_mismatch": "must match {pattern}; it is {value}",
    "decimal_parsing": "must be a decimal number, not {value}",
    "enum": "must be one of {names}, not {value}",
    "literal_error": "must be one of {names}, not {value}",
    "decimal_type": "must be a decimal number, not {value}",
    "decimal_max_digits": "must have at most {max_digits} digits; it is {value}",
    "decimal_max_places": "must have at most {decimal_places} decimal places; it is {value}",
    "decimal_whole_digits": "must have at most {whole_digits} digits before the point; it is {value}",
    "finite_number": "must be a decimal number, not {value}",
    "int_type": "must be a whole number without quotes, not {value}",
    "int_parsing": "must be a whole number{unit}, not {value}",
    "int_parsing_size": "must be a smaller number, not {value}",
    "int_from_float": "must be a whole number{unit}, not {value}",
    "bool_type": "must be true or false, not {value}",
    "bool_parsing": "must be true or false, not {value}",
    "path_type": "must be a path, not {value}",
    "string_type": "must be a string, not {value}",
    "model_type": "must be an object, not {value}",
    "dict_type": "must be an object, not {value}",
    "wrong_form": "{sentence}; it is {value}",
}


def _details(error: ErrorDetails) -> dict[str, Any]:
    context: dict[str, Any] = dict(error.get("ctx", {}))
    given = error["input"]
    names = str(context.get("expected", "")).replace("'", "").replace(" or ", ", ")
    secret = any(str(part) == "tokens" or str(part).endswith("_env") for part in error["loc"])
    value = _HIDDEN if secret else _shown(given)
    unit = " of seconds" if str(error["loc"][-1] if error["loc"] else "").endswith("seconds") else ""
    length = len(given) if isinstance(given, str) else 0
    return {**context, "names": names, "value": value, "length": length, "unit": unit}


def _instead(error: ErrorDetails) -> str:
    """What would be right where people leave out an object's braces."""
    if error["type"] not in ("model_type", "dict_type"):
        return ""
    if error["loc"][-1:] == ("tokens",):
        return "; such as {gitlab: NAME}, with the name of an environment variable"
    return "; write {} where there is nothing to say" if error["input"] is None else ""


def _no_list(error: ErrorDetails) -> str:
    given, named = error["input"], str(error["loc"][-1])
    if named.endswith("_env") and not (isinstance(given, str) and _ENV_NAME.fullmatch(given)):
        return f"must be a list of names, and each {_NAME_OF}"
    if isinstance(given, str) and not looks_secret(given):
        return f"must be a list: [{given}]"
    return "must be a list, in brackets" + (f"; each must be {_NAME_OF}" if named.endswith("_env") else "")


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:
        text = repr(value)
    if looks_secret(text.strip('"')) and not _COMMIT.fullmatch(text.strip('"')):
        return _HIDDEN
    return text if len(text) <= _VALUE_LIMIT else text[: _VALUE_LIMIT - 1] + "…"


def _unknown_key(model: type[BaseModel], loc: Sequence[int | str]) -> str:
    known = _known_keys(model, loc[:-1])
    close = difflib.get_close_matches(str(loc[-1]), known, n=1)
    if close:
        return f"is not a field; did you mean {close[0]}?"
    return f"is not a field; the fields here are {', '.join(known)}" if known else "is not a field"


def _known_keys(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    here: type[BaseModel] | None = model
    for part in loc:
        if here is None:
            return []
        # what is no field of its model is an index, or the key of a map: the map's values have that model already
        here = _child(here, part) or here if isinstance(part, str) else here
    return [] if here is None else [field.alias or name for name, field in here.model_fields.items()]


def _child(model: type[BaseModel], alias: str) -> type[BaseModel] | None:
    field = next((field for name, field in model.model_fields.items() if alias in (field.alias, name)), None)
    return next(_models(field.annotation), None) if field else None


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
