"""Reading what a provider sends, as far as both families read alike."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError


def _or(empty: Any) -> BeforeValidator:
    return BeforeValidator(lambda value: empty() if value is None else value)


Count = Annotated[int, _or(int), Field(ge=0)]
"""A number of tokens; null is none."""
NULL_IS_EMPTY = _or(dict)
NULL_IS_NO_LIST = _or(list)


def first_problem(error: ValidationError) -> str:
    """`usage.input_tokens: Input should be …`: the place and what is wrong there, without what stood there."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}"
