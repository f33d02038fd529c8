"""The part of ObjectMeta that the operator reads."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from hummingbird_operator.api.fields import Observed, Timestamp


class Metadata(Observed):
    """Names, versions and marks of an object, as the API server wrote them."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    finalizers: tuple[str, ...] = ()

    @property
    def deleting(self) -> bool:
        """Whether somebody asked for its deletion; finalizers may still hold it."""
        return self.deletion_timestamp is not None

    @model_serializer(mode="wrap")
    def _only_what_is_there(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if value}
