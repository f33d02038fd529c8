"""Sessions: what a later reply needs to go on where a run stopped (seed 000 §11).

`sessions/<id>/` holds `sandbox.tar.gz`, `transcript.md` and `context.json`, written in this order: the last names
the run and the archive's digest, and is written only over the one that was read (`If-Match`), so that it never speaks
of an archive that is not there, and a run that lost its turn cannot overwrite its successor.

The conversation is worth more than the files: a sandbox that cannot be packed is said (`archive_problem`), and so is,
when a session goes on, an archive of another digest, which a save that was never finished left behind.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from hummingbird_ai.messages import Content, ToolDef
from hummingbird_operator.errors import Conflict, Invalid
from hummingbird_operator.sessions.archive import ArchiveFailed
from hummingbird_operator.sessions.records import Opening, Stored, StoredTool, tool_records
from hummingbird_operator.sessions.store import BlobStore

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
_GONE = "the sandbox was gone before they were packed"


@dataclass(frozen=True)
class Archive:
    """What `sandbox.tar.gz` holds, as far as the operator knows: it never opens one."""

    digest: str
    bytes: int


@dataclass(frozen=True)
class Conversation:
    """What is kept of a conversation. A resume uses `system_prompt` and `tools` byte for byte.

    `contents` are canonical messages. `origin` is the namespace and target that made the session, as the runner
    writes them: only there may it be resumed. `context_tokens` is the size as of the last pass. `internal`: some run
    of it was, so that nothing of it may stand where everybody reads.
    """

    contents: Sequence[Mapping[str, Any]]
    system_prompt: str
    tools: Sequence[ToolDef]
    workflow: str
    workflow_hash: str
    run: str
    context_tokens: int
    origin: str = ""
    internal: bool = False


@dataclass(frozen=True)
class SavedSession(Conversation):
    """A conversation as it was read back; `etag` is what the next save must find unchanged.

    `archive_problem` says why the run that saved it could not keep its files: `archive` is then None, or of a run
    before it.
    """

    archive: Archive | None = None
    archive_problem: str = ""
    etag: str = ""

    def restored_by(self, load: Callable[[Sequence[Mapping[str, Any]]], list[Content]]) -> list[Content]:
        """The conversation in a model's own form, by its `from_canonical`. Raises Invalid that names the place."""
        try:
            return load(self.contents)
        except ValueError as error:
            raise Invalid("spec.session", f"the session's conversation cannot be read: {error}") from error

    def tokens_for(self, model: str) -> int:
        """Its size for the model that goes on with it.

        Another model counts otherwise: newer Claude models make a third more tokens of the same text than others. What
        it counts is known after its first answer; until then three bytes of JSON are taken for a token.
        """
        answers = [message for message in self.contents if message.get("role") == "assistant"]
        if answers and answers[-1].get("producer", {}).get("model") == model:
            return self.context_tokens
        tools = [dict(tool.parameters) for tool in self.tools]
        size = len(json.dumps([list(self.contents), tools], default=str)) + len(self.system_prompt)
        return max(self.context_tokens, size // 3)


class _StoredArchive(Stored):
    digest: str
    bytes: int


class _Envelope(Stored):
    """`context.json`."""

    format_version: Literal[1]
    contents: list[dict[str, Any]]
    system_prompt: str
    tools: list[StoredTool]
    workflow: str
    workflow_hash: str
    run: str
    archive: _StoredArchive | None
    archive_problem: str = ""
    context_tokens: int
    origin: str = ""
    internal: bool = False


def check_place(session: Conversation | Opening, *, workflow: str, origin: str) -> None:
    """Raise Invalid if a run of that workflow and origin may not go on with this session."""
    if workflow != session.workflow:
        raise Invalid("spec.workflow", f"this session belongs to the workflow {session.workflow}, not to {workflow}")
    if origin != session.origin:
        raise Invalid("spec.session", "this session was made for another namespace or target")


class SessionStore:
    """Sessions in a blob store. Raises Unavailable as the store does."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    def load(self, session_id: str) -> SavedSession | None:
        """The session, or None if it does not exist; Invalid says why it cannot be read."""
        key = _key(session_id, "context.json")
        etag = self._store.etag(key)
        data = self._store.get(key) if etag is not None else None
        if etag is None or data is None:
            return None
        return _parsed(key, data, etag)

    def save(
        self,
        session_id: str,
        conversation: Conversation,
        *,
        transcript: str,
        archive: Iterable[bytes] | Archive | None,
        if_match: str | None = None,
    ) -> SavedSession:
        """Write all three and return what the session is now; safe to repeat with the same run.

        `archive` None, or one that raises ArchiveFailed, keeps the archive that is there, and the session says why;
        an Archive is there already and is this conversation's.
        `if_match` is the etag of the session that was resumed, None for a new one. Raises Conflict, before anything is
        written if it can be seen then, when another run saved, and Invalid for what nobody could load.
        """
        context_key = _key(session_id, "context.json")
        _parsed(context_key, _dumped(conversation, None, ""), "")
        current = self.load(session_id)
        if current is not None and current.run == conversation.run:
            return current
        if (current.etag if current else None) != if_match:
            raise Conflict(f"{context_key} was written by another run, {current.run if current else 'and deleted'}")
        kept, problem = current.archive if current else None, _GONE
        if isinstance(archive, Archive):
            kept, problem = archive, ""
        elif archive is not None:
            try:
                size, digest = self._store.put_stream(_key(session_id, "sandbox.tar.gz"), archive)
                kept, problem = Archive(digest, size), ""
            except ArchiveFailed as error:
                problem = str(error)
                logger.warning("session %s is saved without its files: %s: %s", session_id, error, error.detail)
        if problem:
            transcript += f"\n\nThe files of the sandbox were not kept: {problem}.\n"
        self._store.put(_key(session_id, "transcript.md"), transcript.encode(errors="replace"))
        data = _dumped(conversation, kept, problem)
        if if_match is not None:
            return _parsed(context_key, data, self._store.put(context_key, data, if_match=if_match))
        if not self._store.create(context_key, data) and self._store.get(context_key) != data:
            raise Conflict(f"{context_key} was written by another run")
        return _parsed(context_key, data, self._store.etag(context_key) or "")

    def open_archive(self, session_id: str) -> Iterator[bytes] | None:
        """The archive's bytes, or None; compare their digest with `SavedSession.archive` after they were restored."""
        return self._store.open(_key(session_id, "sandbox.tar.gz"))

    def archive_there(self, session_id: str) -> Archive | None:
        """What a save that was never finished left; all of it is read for its digest."""
        chunks = self.open_archive(session_id)
        if chunks is None:
            return None
        digest, size = hashlib.sha256(), 0
        for chunk in chunks:
            digest.update(chunk)
            size += len(chunk)
        return Archive(digest.hexdigest(), size)

    def url(self, session_id: str, artifact: str = "context.json") -> str:
        """Where people find it."""
        return self._store.url(_key(session_id, artifact))


def _key(session_id: str, artifact: str) -> str:
    return f"sessions/{session_id}/{artifact}"


def _dumped(conversation: Conversation, archive: Archive | None, problem: str) -> bytes:
    envelope = {
        "format_version": FORMAT_VERSION,
        "contents": [dict(message) for message in conversation.contents],
        "system_prompt": conversation.system_prompt,
        "tools": tool_records(conversation.tools),
        "workflow": conversation.workflow,
        "workflow_hash": conversation.workflow_hash,
        "run": conversation.run,
        "archive": None if archive is None else {"digest": archive.digest, "bytes": archive.bytes},
        "archive_problem": problem,
        "context_tokens": conversation.context_tokens,
        "origin": conversation.origin,
        "internal": conversation.internal,
    }
    return json.dumps(envelope).encode()  # keys in their order: the tools' schemas must come back byte for byte


def _parsed(key: str, data: bytes, etag: str) -> SavedSession:
    try:
        raw = json.loads(data)
    except ValueError as error:
        raise Invalid(key, f"this session is not JSON: {error}") from error
    version = raw.get("format_version") if isinstance(raw, dict) else None
    if version != FORMAT_VERSION or isinstance(version, bool):
        shown = "no format_version" if version is None else f"format_version {version!r}"
        raise Invalid(key, f"this session has {shown}; only {FORMAT_VERSION} is read. Start a new session")
    try:
        stored = _Envelope.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Invalid(key, f"this session cannot be read: {where}: {first['msg']}") from error
    return SavedSession(
        contents=stored.contents,
        system_prompt=stored.system_prompt,
        tools=tuple(tool.read() for tool in stored.tools),
        workflow=stored.workflow,
        workflow_hash=stored.workflow_hash,
        run=stored.run,
        context_tokens=stored.context_tokens,
        origin=stored.origin,
        internal=stored.internal,
        archive=Archive(stored.archive.digest, stored.archive.bytes) if stored.archive else None,
        archive_problem=stored.archive_problem,
        etag=etag,
    )
