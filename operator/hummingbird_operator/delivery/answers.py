"""GitLab's answers as far as we read them: typed, tolerant of fields that are absent or null."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from hummingbird_operator.errors import Unavailable
from hummingbird_operator.forges.gitlab import SERVICE

NOT_GITLAB = "it answered with something other than JSON (a proxy or a sign-in page?)"

Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Flag = Annotated[bool, BeforeValidator(lambda value: value is True)]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


AnswerT = TypeVar("AnswerT", bound=BaseModel)


class Person(_Answer):
    """An account, as it stands in a note or a merge request."""

    id: int | None = None


class RawNote(_Answer):
    """A note; `author` is None where GitLab does not say it."""

    id: int
    body: Text = ""
    author: Person | None = None
    internal: Flag = False
    confidential: Flag = False
    system: Flag = False
    project_id: int | None = None
    created_at: Text = ""
    updated_at: Text = ""
    resolvable: Flag = False
    resolved: Flag = False
    resolved_at: Text = ""


class RawAccount(Person):
    """The account that a token belongs to."""

    web_url: Text = ""


class RawAward(_Answer):
    """A reaction."""

    id: int
    name: Text = ""
    user: Person | None = None
    created_at: Text = ""


class RawDiscussion(_Answer):
    """A thread, or a plain note alone in one."""

    id: str
    notes: tuple[RawNote, ...] = ()


class RawPipeline(_Answer):
    """A pipeline."""

    id: int | None = None
    sha: Text = ""
    ref: Text = ""
    status: Text = ""
    source: Text = ""
    project_id: int | None = None


class RawMergeRequest(_Answer):
    """A merge request's details."""

    sha: Text = ""
    state: Text = ""
    title: Text = ""
    source_branch: Text = ""
    draft: Flag = False
    work_in_progress: Flag = False
    source_project_id: int | None = None
    target_project_id: int | None = None
    project_id: int | None = None
    author: Person | None = None
    head_pipeline: RawPipeline | None = None


class RawUser(_Answer):
    """An account; `bot` stands there since GitLab 13.4."""

    id: int
    bot: bool = False


def read(model: type[AnswerT], raw: object) -> AnswerT:
    """The answer as `model`. Raises Unavailable where it is none: something else than GitLab may have spoken."""
    if not isinstance(raw, dict):
        raise Unavailable(SERVICE, NOT_GITLAB)
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Unavailable(SERVICE, f"its answer cannot be read: {where}: {first['msg']}") from error
