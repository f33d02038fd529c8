"""The one door between the model and everything it may touch: the sandbox and the workflow's data sources.

The loop calls `execute` and gets a JSON object back, whatever happens: an unknown tool, arguments that do not fit,
a source that fails are answers to the model, not errors of the run. Only SandboxLost, Aborted and LeadershipLost
pass through, because no answer could help the model then.
"""

from __future__ import annotations

import json
import logging
import posixpath
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import best_match

from hummingbird_ai.messages import ToolCall, ToolDef
from hummingbird_operator.errors import Aborted, Invalid, LeadershipLost, SandboxLost
from hummingbird_operator.sessions.sandbox import DATA_DIR, EXEC_TIMEOUT, SPILL_DIR, Sandbox
from hummingbird_operator.sessions.spill import Preview, Result, Spill, StreamingResponse, merged

__all__ = ["MAX_EXEC_TIMEOUT", "SANDBOX_TOOLS", "SourceResult", "StreamingResponse", "ToolRegistry", "confined"]

logger = logging.getLogger(__name__)

SourceResult = str | bytes | dict[str, Any] | list[Any] | StreamingResponse
"""What a data source's function may return."""

MAX_EXEC_TIMEOUT = 600
"""Seconds that the model may ask for one command."""

MAX_BATCH = 50
_ERROR_CHARACTERS = 2000

_FETCH = {
    "type": "object",
    "properties": {
        "tool": {"type": "string", "description": "Name of the data source tool to call."},
        "arguments": {"type": "object", "description": "Arguments of that tool."},
        "path": {"type": "string", "description": f"File to write, under {DATA_DIR}/."},
    },
    "required": ["tool", "arguments", "path"],
    "additionalProperties": False,
}
_EXEC_DEF = ToolDef(
    name="sandbox_exec",
    description=(
        "Run a shell command (sh -c) in the sandbox. Returns exit_code, stdout and stderr. Output over 4096 bytes is "
        "kept in a file in the sandbox (stdout_file, stderr_file); you see its head and its tail."
    ),
    parameters={
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1, "description": "The command line."},
            "timeout_seconds": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_EXEC_TIMEOUT,
                "description": f"Seconds until the command is killed; {EXEC_TIMEOUT:.0f} unless given.",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    },
)
_FETCH_DEF = ToolDef(
    name="fetch_to_sandbox",
    description=(
        "Call a data source tool and write its result to a file in the sandbox. Returns the path, bytes and lines, "
        "no content. Use it when you will process the data with sandbox_exec."
    ),
    parameters=_FETCH,
)
_BATCH_DEF = ToolDef(
    name="fetch_batch_to_sandbox",
    description=(
        "Call several data source tools in one go, each result into a file of its own in the sandbox. Returns one "
        "entry per request, in order; a request that fails does not stop the others."
    ),
    parameters={
        "type": "object",
        "properties": {"requests": {"type": "array", "minItems": 1, "maxItems": MAX_BATCH, "items": _FETCH}},
        "required": ["requests"],
        "additionalProperties": False,
    },
)
SANDBOX_TOOLS = (_EXEC_DEF, _FETCH_DEF, _BATCH_DEF)
"""The three that every registry with a sandbox offers, in this order, before any data source."""

_BATCH_SHAPE = {
    "type": "object",
    "properties": {"requests": {"type": "array", "minItems": 1, "maxItems": MAX_BATCH}},
    "required": ["requests"],
    "additionalProperties": False,
}
"""What is checked before a batch starts: its items are checked one by one, so that one bad item costs only itself."""


@dataclass(frozen=True)
class _Tool:
    definition: ToolDef
    schema: Draft202012Validator
    run: Callable[[Mapping[str, Any], str], Result]


@dataclass(frozen=True)
class _Source:
    schema: Draft202012Validator
    func: Callable[..., SourceResult]
    metadata: Mapping[str, Any]


class ToolRegistry:
    """Dispatches tool calls. Without a sandbox its three tools do not exist and long data is cut to previews."""

    def __init__(self, sb: Sandbox | None = None) -> None:
        self._tools: dict[str, _Tool] = {}
        self._sources: dict[str, _Source] = {}
        self._announcements: list[str] = []
        self._spill: Spill | None = None
        self._inline: Callable[[str, object], Result] = Preview().inline
        if sb is not None:
            self._add_sandbox_tools(sb, Spill(sb))

    def _add_sandbox_tools(self, sb: Sandbox, spill: Spill) -> None:
        self._spill, self._inline = spill, spill.inline

        def sandbox_exec(arguments: Mapping[str, Any], command_id: str) -> Result:
            return _run_command(sb, spill, arguments, command_id)

        def fetch(arguments: Mapping[str, Any], _: str) -> Result:
            return self._fetch(spill, arguments)

        def fetch_batch(arguments: Mapping[str, Any], _: str) -> Result:
            requests = arguments["requests"]
            results = [self._guarded("fetch_to_sandbox", self._fetch_item, spill, item) for item in requests]
            gaps = [f"{item.get('saved_to')}: {gap}" for item in results for gap in item.get("incomplete", [])]
            return merged({"results": results}, {"incomplete": gaps})

        for definition, schema, run in (
            (_EXEC_DEF, _EXEC_DEF.parameters, sandbox_exec),
            (_FETCH_DEF, _FETCH, fetch),
            (_BATCH_DEF, _BATCH_SHAPE, fetch_batch),
        ):
            self._tools[definition.name] = _Tool(definition, Draft202012Validator(schema), run)

    def register_data_source(
        self,
        tool_def: ToolDef,
        func: Callable[..., SourceResult],
        response_metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Offer `func(**arguments)` under the definition's name; the metadata is merged into each of its results.

        Raises Invalid for a name that is taken and for parameters that are not a JSON Schema.
        """
        name = tool_def.name
        if name in self._tools:
            raise Invalid(f"tool {name}", "this name is registered twice")
        try:
            Draft202012Validator.check_schema(dict(tool_def.parameters))
        except SchemaError as error:
            raise Invalid(f"tool {name}", f"its parameters are not a JSON Schema: {error.message}") from error
        source = _Source(Draft202012Validator(dict(tool_def.parameters)), func, dict(response_metadata or {}))

        def run(arguments: Mapping[str, Any], _: str) -> Result:
            return merged(source.metadata, self._inline(name, source.func(**arguments)))

        self._sources[name] = source
        self._tools[name] = _Tool(tool_def, source.schema, run)

    def get_tool_defs(self) -> list[ToolDef]:
        """Every tool, in the order of registration, which never changes within a session."""
        return [tool.definition for tool in self._tools.values()]

    def get_tool_notes(self) -> str:
        """The tools' notes as one section of the system prompt; empty if there are none."""
        notes = [tool.definition.notes.strip() for tool in self._tools.values() if tool.definition.notes]
        return "\n\n".join(["## Data Source Notes", *notes]) if notes else ""

    def execute(self, tool_call: ToolCall, command_id: str | None = None) -> Result:
        """Run one call and return its result. `command_id` makes a command's repetition safe across restarts."""
        tool = self._tools.get(tool_call.name)
        if tool is None:
            result: Result = {"error": f"unknown tool {tool_call.name!r}; known tools: {', '.join(self._tools)}"}
        elif problem := _problem(tool.schema, tool_call.arguments):
            result = {"error": problem}
        else:
            result = self._guarded(tool_call.name, tool.run, tool_call.arguments, command_id or uuid.uuid4().hex)
        if self._announcements:
            result = {**result, "notice": " ".join(self._announcements)}
            self._announcements.clear()
        return result

    def announce(self, text: str) -> None:
        """Tell the model something with the next result, such as that the sandbox was replaced and files are gone."""
        self._announcements.append(text)

    def never_reuse(self, history: Sequence[Any]) -> None:
        """Give no spilled file a name that this history (contents or results) holds already."""
        if self._spill is not None:
            self._spill.counter.never_reuse(json.dumps(history, ensure_ascii=False, default=str))

    def _fetch(self, spill: Spill, arguments: Mapping[str, Any]) -> Result:
        source = self._sources.get(arguments["tool"])
        if source is None:
            return {"error": f"tool: {arguments['tool']!r} is not a data source; known: {', '.join(self._sources)}"}
        path = confined(arguments["path"])
        if problem := _problem(source.schema, arguments["arguments"], "arguments"):
            return {"error": problem}
        return merged(source.metadata, spill.save(path, source.func(**arguments["arguments"])))

    def _fetch_item(self, spill: Spill, item: Any) -> Result:
        if problem := _problem(Draft202012Validator(_FETCH), item):
            return {"error": problem}
        return self._fetch(spill, item)

    @staticmethod
    def _guarded(name: str, function: Callable[..., Result], *arguments: Any) -> Result:
        """The border that a tool's failure does not pass: it becomes an answer to the model."""
        try:
            return function(*arguments)
        except (SandboxLost, Aborted, LeadershipLost):
            raise
        except Invalid as error:
            return {"error": str(error)[:_ERROR_CHARACTERS]}
        except Exception as error:
            logger.exception("tool %s failed", name)
            return {"error": f"Tool {name} failed: {error or type(error).__name__}"[:_ERROR_CHARACTERS]}


def confined(path: str) -> str:
    """The normalised path under `/tmp/data`; relative ones start there. Invalid says what is wrong with it."""
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in path):
        raise Invalid("path", "control characters are not allowed")
    if ".." in path.split("/"):
        raise Invalid("path", f"{path!r} must not contain '..'")
    whole = posixpath.normpath(posixpath.join(DATA_DIR, path))
    whole = f"/{whole.lstrip('/')}"
    if not whole.startswith(f"{DATA_DIR}/") or path.endswith("/"):
        raise Invalid("path", f"{path!r} must name a file under {DATA_DIR}/")
    if whole == SPILL_DIR or whole.startswith(f"{SPILL_DIR}/"):
        raise Invalid("path", f"{SPILL_DIR} is kept for spilled results; choose another folder under {DATA_DIR}/")
    if len(whole.encode(errors="replace")) > 1024 or any(
        len(part.encode(errors="replace")) > 255 for part in whole.split("/")
    ):
        raise Invalid("path", "it is too long")
    return whole


def _run_command(sb: Sandbox, spill: Spill, arguments: Mapping[str, Any], command_id: str) -> Result:
    command, timeout = arguments["command"], float(arguments.get("timeout_seconds", EXEC_TIMEOUT))
    if "\0" in command:
        return {"error": "command: a NUL character cannot be part of a command"}
    outcome = sb.run(command_id, command, spill.limits(timeout))
    result = merged(
        {"exit_code": outcome.exit_code},
        spill.command_output("stdout", outcome.stdout),
        spill.command_output("stderr", outcome.stderr),
    )
    if outcome.timed_out:
        result["error"] = f"the command was killed after {timeout:.0f} seconds; its output so far is here"
    return result


def _problem(schema: Draft202012Validator, arguments: object, where: str = "") -> str | None:
    """Why the arguments do not fit, beginning with the field's name; None if they do."""
    error = best_match(schema.iter_errors(arguments))
    if error is None:
        return None
    path = ".".join(filter(None, [where, *(str(part) for part in error.absolute_path)])) or "arguments"
    return f"{path}: {error.message}"[:500]
