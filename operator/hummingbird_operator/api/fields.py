"""What every kind is built from: the base models and the bounded field types.

Input (a spec) refuses unknown keys, for a misspelt limit must not be ignored in silence. What was observed (a status,
metadata) tolerates them, for a newer version may have written more; its texts are cut to their bound instead of
refused, because a status that the API server refuses would stall a run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from hummingbird_operator.api.conditions import rfc3339
from hummingbird_operator.problems import invalid


def camel(name: str) -> str:
    """The wire name of an attribute: camelCase, but USD in capitals."""
    wire = to_camel(name)
    return wire.removesuffix("Usd") + "USD" if wire.endswith("Usd") else wire


class Model(BaseModel):
    """Attributes are snake_case, the wire is camelCase; construction takes both. Values are frozen."""

    model_config = ConfigDict(
        alias_generator=camel,
        populate_by_name=True,
        frozen=True,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )

    @classmethod
    def parse(cls, data: object, where: str = "") -> Self:
        """Read the wire form. Raises errors.Invalid that names the path in camelCase, below `where`."""
        try:
            return cls.model_validate(dict(data) if isinstance(data, Mapping) else data)
        except ValidationError as error:
            raise invalid(cls, error, where) from error

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A changed copy, by attribute names. Unlike pydantic's own it is checked, so that bounds hold for it too."""
        changes = dict(update or {})
        unknown = sorted(changes.keys() - type(self).model_fields.keys())
        if unknown:
            raise TypeError(f"{type(self).__name__} has no attribute {', '.join(unknown)}")
        values = {name: getattr(self, name) for name in type(self).model_fields}
        copy = type(self).model_validate({**values, **changes})
        return copy if not deep else type(self).model_validate(copy.model_dump())

    def as_dict(self) -> dict[str, Any]:
        """The wire form, JSON-able; what is not set is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Input(Model):
    """A person's or an ingestor's order: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")


class Observed(Model):
    """What the operator or the API server wrote: unknown keys are tolerated."""

    model_config = ConfigDict(extra="ignore")


@dataclass(frozen=True)
class Form:
    """A string's form: the expression stands in the schema, the sentence in our own errors."""

    expression: str
    sentence: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), "pattern": self.expression}

    def check(self, value: str) -> str:
        """The value itself; raises pydantic's error with the sentence."""
        if not re.fullmatch(self.expression, value):
            raise PydanticCustomError("wrong_form", "{sentence}", {"sentence": self.sentence})
        return value


def whole(minimum: int, maximum: int) -> Any:
    """Metadata of a bounded whole number; a quoted one is refused, as the API server does."""
    return Field(ge=minimum, le=maximum, strict=True)


def _cut(maximum: int) -> BeforeValidator:
    return BeforeValidator(lambda value: value[:maximum] if isinstance(value, str) else value)


_ALNUM_ENDS = "lower-case letters, digits and hyphens, beginning and ending with a letter or digit"
_MONEY = Form(
    r"^(0|[1-9][0-9]{0,5})(\.[0-9]{1,6})?$",
    'must be a decimal number in quotes with at most six places, such as "2.00"',
)
_MONEY_SCHEMA = {"type": "string", "maxLength": 13, "pattern": _MONEY.expression}
_SPENT_SCHEMA = {"type": "string", "maxLength": 20, "pattern": r"^[0-9]+(\.[0-9]+)?$"}
_MICRO = Decimal("0.000001")


def _money(value: object) -> Decimal:
    if isinstance(value, Decimal):
        return Decimal(_MONEY.check(format(value, "f")))
    if not isinstance(value, str):
        raise PydanticCustomError("wrong_form", "{sentence}", {"sentence": _MONEY.sentence})
    return Decimal(_MONEY.check(value))


def _spent(value: object) -> Decimal:
    try:
        money = value if isinstance(value, Decimal) else Decimal(str(value))
        micro = money.quantize(_MICRO, rounding=ROUND_CEILING)
        return money if money == micro and len(str(money)) <= len(str(micro)) else micro
    except InvalidOperation as error:
        raise PydanticCustomError("wrong_form", "{sentence}", {"sentence": _MONEY.sentence}) from error


_PRINT_MONEY = PlainSerializer(lambda value: format(value, "f"), return_type=str)

Money = Annotated[Decimal, BeforeValidator(_money), _PRINT_MONEY, WithJsonSchema(_MONEY_SCHEMA)]
"""US dollars: a string on the wire, a Decimal here, printed as it was read."""

Spent = Annotated[Decimal, BeforeValidator(_spent), _PRINT_MONEY, WithJsonSchema(_SPENT_SCHEMA)]
"""US dollars in a status, rounded up to a millionth: never understated. The journal keeps the exact figure."""

Timestamp = Annotated[
    datetime,
    AfterValidator(lambda moment: moment.astimezone(UTC).replace(microsecond=0)),
    PlainSerializer(rfc3339, return_type=str),
]
"""A moment in UTC and whole seconds, as the API server writes times."""

Count = Annotated[int, whole(0, 10**15)]
"""A counter of a status."""

Members = Annotated[int, whole(0, 2**31 - 1)]
"""A number of sandboxes; the scale subresource holds 32 bits."""

WorkflowName = Annotated[
    str,
    Field(max_length=40),
    Form(r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$", f"must be 1 to 40 {_ALNUM_ENDS}"),
]
PoolName = Annotated[
    str,
    Field(max_length=63),
    Form(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", f"must be 1 to 63 {_ALNUM_ENDS}"),
]
SecretName = Annotated[
    str,
    Field(max_length=253),
    Form(r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$", "must be an object's name in lower case"),
]
SessionId = Annotated[
    str,
    Field(max_length=36),
    Form(
        r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
        "must be a UUID in lower case, such as 3f0c4b8e-51f2-4c7d-9a43-0b6c1f0e7d55",
    ),
]
CommitSha = Annotated[
    str,
    Field(max_length=64),
    Form(r"^([0-9a-f]{40}|[0-9a-f]{64})$", "must be a full commit id: 40 or 64 hexadecimal digits in lower case"),
]
# No segment is nothing but dots: a server on the way may resolve it, and the path then names another project.
# Spelt out, for the expressions of a CRD's schema (RE2) know no look-ahead.
_SEGMENT = r"([A-Za-z0-9_]|\.+[A-Za-z0-9_-])[A-Za-z0-9_.-]*"
GitLabProject = Annotated[
    str,
    Field(max_length=512),
    Form(
        rf"^{_SEGMENT}(/{_SEGMENT})+$",
        "must be the project's full path, such as group/subgroup/app, not its address or number",
    ),
]
GitHubRepository = Annotated[
    str,
    Field(max_length=140),
    Form(rf"^[A-Za-z0-9][A-Za-z0-9-]{{0,38}}/{_SEGMENT}$", "must be owner/name, such as octo-org/app"),
]
ModelName = Annotated[
    str,
    Field(max_length=128),
    Form(
        r"^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}$",
        "must be a model's name as its provider writes it, such as gemini-3.8-flash",
    ),
]
EventName = Annotated[
    str,
    Field(max_length=40),
    Form(r"^[a-z][a-z_]{0,39}$", "must be the event's name in lower case, such as merge_request"),
]
Url = Annotated[str, Field(max_length=2048), Form(r"^https?://[^\s]+$", "must be an http or https address")]
OpaqueId = Annotated[
    str, Field(max_length=64), Form(r"^[0-9A-Za-z_-]{1,64}$", "must be 1 to 64 letters, digits, hyphens or underscores")
]

# Texts of a status, cut to their bound.
Token = Annotated[str, _cut(128), Field(max_length=128)]
Name = Annotated[str, _cut(253), Field(max_length=253)]
Address = Annotated[str, _cut(2048), Field(max_length=2048)]
Sentence = Annotated[str, _cut(1024), Field(max_length=1024)]


def utf8_prefix(words: str, limit: int) -> str:
    """The longest beginning of `words` that fits in `limit` bytes of UTF-8; no character is torn."""
    raw = words.encode("utf-8", errors="surrogatepass")
    return words if len(raw) <= limit else raw[:limit].decode("utf-8", errors="ignore")
