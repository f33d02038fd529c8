"""One event of a forge, however it came: an SNS envelope, a raw queue message, or the body of a webhook.

What cannot be read now can never be read: `BadMessage`. Memory is bounded before anything is unpacked, for a queue is
only as trusted as everybody who may write to it. Shapes: an SNS notification as Amazon documents it, with the
attributes `source`, `event_type` and `content_encoding` (`gzip+base64`, or absent for plain JSON).
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from hummingbird_operator.api.conditions import rfc3339
from hummingbird_operator.errors import HummingbirdError

COMPRESSED_BYTES = 1024 * 1024
"""What a queue message holds at most (Amazon SQS)."""
BODY_BYTES = 25 * 1024 * 1024
"""What a forge sends at most in one webhook, and what a message may be unpacked to."""
DEPTH = 100
"""Levels of nesting; real events have fewer than ten."""
MARKS = 200_000
"""Commas and brackets of a body outside its texts: each may become an object of two hundred bytes; real events have a
few thousand."""
DELIVERY_CHARACTERS = 100
"""Of a delivery's id, which is for logs; SNS and GitLab send UUIDs."""

_CHUNK = 64 * 1024
_GZIP = 31  # zlib's window bits for a gzip header
_NESTED_TEXTS = 3
_SURROGATES = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""Every text in JSON, the last one also where its end is missing: a pattern that can fail tries again and again."""


class BadMessage(HummingbirdError):
    """It will never be readable; the text says why."""


@dataclass(frozen=True)
class Event:
    """A forge's event; `payload` is its JSON object, nothing in it is checked yet."""

    source: str
    """The forge: gitlab."""
    type: str
    """The kind, as the transport says; may be empty. The payload decides, this is for logs."""
    payload: Mapping[str, Any]
    delivery: str = ""
    """Id of the delivery for logs; may be empty."""


def decode_message(body: str, attributes: Mapping[str, str], topic_arns: Iterable[str] = ()) -> Event:
    """The event of a queue message: an SNS envelope, or raw delivery with `attributes` from the message itself.

    With `topic_arns` an envelope of any other topic is refused. One without a topic passes: it is no SNS that made it,
    and who may write to the queue is the queue policy's business. Raises BadMessage.
    """
    content = _content(body, attributes)
    if _is_envelope(content):
        return decode_sns_message(content, topic_arns)
    return _named(attributes, content, attributes.get("delivery", ""))


def decode_sns_message(envelope: Mapping[str, Any], topic_arns: Iterable[str] = ()) -> Event:
    """The event in a parsed SNS envelope. Raises BadMessage, also for anything but a notification."""
    kind = envelope.get("Type", "Notification")
    if kind != "Notification":
        raise BadMessage(f"an SNS message of the type {_short(kind)} holds no event; confirm subscriptions by hand")
    topic, allowed = envelope.get("TopicArn"), set(topic_arns)
    if topic is not None and allowed and not (isinstance(topic, str) and topic in allowed):
        raise BadMessage(f"the topic {_short(topic)} is not in ingest.topic_arns")
    message = envelope.get("Message")
    if not isinstance(message, str):
        raise BadMessage("the SNS envelope has no text in Message")
    delivery, attributes = envelope.get("MessageId"), _attributes(envelope)
    return _named(attributes, _content(message, attributes), delivery if isinstance(delivery, str) else "")


def encode_envelope(event: Event, *, now: datetime) -> str:
    """The message that `decode_message` reads back: an envelope without a topic, its content packed."""
    content = json.dumps(event.payload, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    packed = base64.b64encode(gzip.compress(content, mtime=0)).decode()
    attributes = {"source": event.source, "event_type": event.type, "content_encoding": "gzip+base64"}
    envelope = {
        "Type": "Notification",
        "MessageId": event.delivery,
        "Timestamp": rfc3339(now),
        "Message": packed,
        "MessageAttributes": {
            name: {"Type": "String", "Value": value}
            for name, value in attributes.items()
            if value  # SNS and SQS know no empty value
        },
    }
    return json.dumps({name: value for name, value in envelope.items() if value})


def parse_object(raw: bytes) -> dict[str, Any]:
    """A JSON object in UTF-8, read strictly; lone surrogates in its texts become U+FFFD. Raises BadMessage.

    Refused: any other value, a key that stands twice, NaN and infinite numbers, more than BODY_BYTES, DEPTH or MARKS.
    """
    value = _parsed(raw)
    if not isinstance(value, dict):
        raise BadMessage(f"the body must be a JSON object, not {_kind(value)}")
    return value


def _parsed(raw: bytes) -> Any:
    if len(raw) > BODY_BYTES:
        raise BadMessage(f"the body has {len(raw)} bytes, at most {BODY_BYTES} are read")
    if _holds_too_much(raw):
        raise BadMessage(f"the body holds more than {MARKS} values")
    try:
        value = json.loads(
            raw.decode("utf-8-sig"), object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite
        )
    except UnicodeDecodeError as error:
        raise BadMessage(f"the body is not UTF-8 (byte {error.start})") from error
    except RecursionError as error:
        raise BadMessage(f"the body nests deeper than {DEPTH} levels") from error
    except ValueError as error:
        raise BadMessage(f"the body is not JSON: {_short(error)}") from error
    _check_depth(value)
    return _mended(value) if _ESCAPED_SURROGATE.search(raw) else value


def _holds_too_much(raw: bytes) -> bool:
    """Whether there are too many marks outside texts: a log or a table in a description may hold more within one."""
    marks = _marks(raw, 0, len(raw))
    if marks <= MARKS or raw.count(b'"') > 2 * MARKS:
        return marks > MARKS
    return marks - sum(_marks(raw, *text.span()) for text in _TEXTS.finditer(raw)) > MARKS


def _marks(raw: bytes, start: int, end: int) -> int:
    return raw.count(b",", start, end) + raw.count(b"[", start, end) + raw.count(b"{", start, end)


def _content(content: str, attributes: Mapping[str, str]) -> dict[str, Any]:
    """The object that a message holds, packed or plain; a JSON text that holds JSON again is opened."""
    encoding = attributes.get("content_encoding", "")
    if encoding not in ("", "gzip+base64"):
        raise BadMessage(f"content_encoding is {_short(encoding)}; known is gzip+base64, or none for plain JSON")
    value = _parsed(_unpacked(content) if encoding else _encoded(content))
    for _ in range(_NESTED_TEXTS):
        if isinstance(value, str):
            value = _parsed(_encoded(value))
    if not isinstance(value, dict):
        raise BadMessage(f"the message must hold a JSON object, not {_kind(value)}")
    return value


def _named(attributes: Mapping[str, str], payload: dict[str, Any], delivery: str) -> Event:
    source, kind = attributes.get("source") or "gitlab", attributes.get("event_type", "")
    return Event(source, kind, payload, delivery[:DELIVERY_CHARACTERS])


def _is_envelope(outer: Mapping[str, Any]) -> bool:
    return "Message" in outer and ("Type" in outer or "MessageAttributes" in outer) and "object_kind" not in outer


def _attributes(envelope: Mapping[str, Any]) -> dict[str, str]:
    """`{"name": {"Type": "String", "Value": "…"}}` as plain pairs; what has another shape is left out."""
    given = envelope.get("MessageAttributes")
    pairs = given.items() if isinstance(given, dict) else ()
    found = {name: value.get("Value") for name, value in pairs if isinstance(value, dict)}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _unpacked(content: str) -> bytes:
    if len(content) > 2 * COMPRESSED_BYTES:
        raise BadMessage(f"the packed content has {len(content)} characters")
    try:
        packed = base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadMessage(f"the content is not base64: {_short(error)}") from error
    if len(packed) > COMPRESSED_BYTES:
        raise BadMessage(f"the packed content has {len(packed)} bytes, at most {COMPRESSED_BYTES} are unpacked")
    return _inflated(packed)


def _inflated(packed: bytes) -> bytes:
    """Piece by piece, so that a bomb is found out at the bound. One gzip member, for nobody needs more."""
    stream, pieces, size = zlib.decompressobj(_GZIP), [], 0
    try:
        piece = stream.decompress(packed, _CHUNK)
        while piece:
            size += len(piece)
            if size > BODY_BYTES:
                raise BadMessage(f"the content unpacks to more than {BODY_BYTES} bytes")
            pieces.append(piece)
            piece = stream.decompress(stream.unconsumed_tail, _CHUNK)
    except zlib.error as error:
        raise BadMessage(f"the content is not gzip: {error}") from error
    if not stream.eof:
        raise BadMessage("the content is not gzip: its end is missing")
    if stream.unused_data:
        raise BadMessage(f"the content has {len(stream.unused_data)} bytes after its gzip stream")
    return b"".join(pieces)


def _encoded(text: str) -> bytes:
    if len(text) > BODY_BYTES:
        raise BadMessage(f"the body has {len(text)} characters, at most {BODY_BYTES} bytes are read")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadMessage(f"the body is not Unicode text (character {error.start})") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        count = Counter(name for name, _ in pairs)
        twice = count.most_common(1)[0][0]
        raise ValueError(f"the key {_short(twice)} stands twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is out of range")
    return value


def _check_depth(value: Any) -> None:
    """No recursion of ours, whatever the depth."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH + 1):
        if not level:
            return
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for ones in inner for one in ones if isinstance(one, dict | list)]
    raise BadMessage(f"the body nests deeper than {DEPTH} levels")


def _mended(value: Any) -> Any:
    """The value with its lone surrogates replaced; it nests no deeper than DEPTH."""
    if isinstance(value, list):
        return [_mended(one) for one in value]
    if isinstance(value, dict):
        return {_whole(name): _mended(one) for name, one in value.items()}
    return _whole(value)


def _whole(value: Any) -> Any:
    return _SURROGATES.sub("�", value) if isinstance(value, str) else value


def _kind(value: object) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _short(value: object) -> str:
    return ascii(str(value))[1:-1][:120]
