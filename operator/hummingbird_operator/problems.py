"""From a validation error to one sentence for a person: the path as it is written, and what would be right."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hummingbird_operator.errors import Invalid

_SHOWN = 3
_VALUE_LIMIT = 60


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
        else:
            path += f".{part}" if path else part
    return path or "the object"


def _problem(model: type[BaseModel], error: ErrorDetails) -> str:
    kind = error["type"]
    if kind == "extra_forbidden":
        return _unknown_key(model, error["loc"])
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind in _SENTENCES:
        return _SENTENCES[kind].format(**_details(error))
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
    "int_type": "must be a whole number without quotes, not {value}",
    "bool_type": "must be true or false, not {value}",
    "string_type": "must be a string, not {value}",
    "model_type": "must be an object, not {value}",
    "dict_type": "must be an object, not {value}",
    "wrong_form": "{sentence}; it is {value}",
}


def _details(error: ErrorDetails) -> dict[str, Any]:
    context: dict[str, Any] = dict(error.get("ctx", {}))
    given = error["input"]
    names = str(context.get("expected", "")).replace("'", "").replace(" or ", ", ")
    return {**context, "names": names, "value": _shown(given), "length": len(given) if isinstance(given, str) else 0}


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:
        text = repr(value)
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
