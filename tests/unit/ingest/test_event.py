"""From bytes to an event: every form that is read, every poison that is refused, and memory that stays bounded."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import math
import tracemalloc
import zlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.ingest.event import (
    BODY_BYTES,
    COMPRESSED_BYTES,
    DEPTH,
    BadMessage,
    Event,
    decode_message,
    encode_envelope,
    parse_object,
)

NOW = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
PAYLOAD = {"object_kind": "note", "object_attributes": {"note": "ä \u0000 😀"}}
TOPIC = "arn:aws:sns:eu-central-1:1:gitlab"


def packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def envelope(message: Any, *, encoding: str = "", **changes: Any) -> str:
    attributes = {"source": "gitlab", "event_type": "note", "content_encoding": encoding}
    return json.dumps(
        {
            "Type": "Notification",
            "MessageId": "id-1",
            "TopicArn": TOPIC,
            "Message": message,
            "MessageAttributes": {
                name: {"Type": "String", "Value": value} for name, value in attributes.items() if value
            },
            **changes,
        }
    )


def refusal(body: str, attributes: dict[str, str] | None = None, topics: tuple[str, ...] = ()) -> str:
    with pytest.raises(BadMessage) as caught:
        decode_message(body, attributes or {}, topics)
    return str(caught.value)


@pytest.mark.parametrize("encoding", ["", "gzip+base64"])
def test_an_sns_envelope_is_read_plain_and_packed(encoding: str) -> None:
    content = json.dumps(PAYLOAD)
    body = envelope(packed(content.encode()) if encoding else content, encoding=encoding)
    assert decode_message(body, {}) == Event("gitlab", "note", PAYLOAD, "id-1")


@pytest.mark.parametrize("encoding", ["", "gzip+base64"])
def test_raw_delivery_is_read_plain_and_packed(encoding: str) -> None:
    content = json.dumps(PAYLOAD)
    attributes = {"source": "gitlab", "event_type": "note"} | ({"content_encoding": encoding} if encoding else {})
    body = packed(content.encode()) if encoding else content
    assert decode_message(body, attributes) == Event("gitlab", "note", PAYLOAD)


def test_a_message_without_any_attribute_is_gitlabs() -> None:
    assert decode_message(json.dumps(PAYLOAD), {}) == Event("gitlab", "", PAYLOAD)


def test_a_payload_that_has_a_message_of_its_own_is_no_envelope() -> None:
    own = PAYLOAD | {"Message": "hello", "Type": "Notification"}
    assert decode_message(json.dumps(own), {}).payload == own


@pytest.mark.parametrize("times", [1, 2, 3])
def test_json_in_a_json_string_is_opened(times: int) -> None:
    content = json.dumps(PAYLOAD)
    for _ in range(times):
        content = json.dumps(content)
    assert decode_message(content, {}).payload == PAYLOAD
    assert decode_message(envelope(content), {}).payload == PAYLOAD
    assert decode_message(envelope(packed(content.encode()), encoding="gzip+base64"), {}).payload == PAYLOAD


def test_json_in_ever_more_json_strings_is_refused() -> None:
    content = json.dumps(PAYLOAD)
    for _ in range(9):
        content = json.dumps(content)
    assert refusal(content) == "the message must hold a JSON object, not a text"


@pytest.mark.parametrize("kind", ["SubscriptionConfirmation", "UnsubscribeConfirmation", 7, None])
def test_only_notifications_hold_events(kind: object) -> None:
    assert "holds no event" in refusal(envelope(json.dumps(PAYLOAD), Type=kind))


def test_a_topic_that_is_not_allowed_is_refused_and_no_topic_is_not() -> None:
    body, ours = envelope(json.dumps(PAYLOAD)), encode_envelope(Event("gitlab", "note", PAYLOAD), now=NOW)
    assert decode_message(body, {}, [TOPIC]).payload == PAYLOAD
    assert refusal(body, topics=("arn:other",)) == f"the topic {TOPIC} is not in ingest.topic_arns"
    assert "is not in ingest.topic_arns" in refusal(envelope("{}", TopicArn=["x"]), topics=(TOPIC,))
    assert decode_message(ours, {}, [TOPIC]).payload == PAYLOAD


@pytest.mark.parametrize("message", [None, 7, {"a": 1}, ["x"]])
def test_an_envelope_needs_a_text(message: object) -> None:
    assert refusal(envelope(message)) == "the SNS envelope has no text in Message"


@pytest.mark.parametrize("attributes", [None, [], {"source": "gitlab"}, {"source": {"Type": "String", "Value": 7}}])
def test_attributes_of_another_shape_are_left_out(attributes: object) -> None:
    assert decode_message(envelope(json.dumps(PAYLOAD), MessageAttributes=attributes), {}).source == "gitlab"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("%%%", "not base64"),
        ("ä", "not base64"),
        ("YQ", "not base64"),
        (base64.b64encode(b"{}").decode(), "not gzip"),
        (base64.b64encode(gzip.compress(b"{}", mtime=0)[:-9]).decode(), "its end is missing"),
        (base64.b64encode(gzip.compress(b"{}", mtime=0) + b"more").decode(), "4 bytes after"),
        (base64.b64encode(gzip.compress(b"{}", mtime=0) * 2).decode(), "bytes after"),
        (base64.b64encode(b"").decode(), "its end is missing"),
        (base64.b64encode(bytes(COMPRESSED_BYTES + 1)).decode(), "at most 1048576 are unpacked"),
        ("A" * 3 * COMPRESSED_BYTES, "3145728 characters"),
        (packed(b"{"), "not JSON"),
        (packed(b"\xff"), "not UTF-8"),
        (packed(b"[]"), "not a list"),
    ],
)
def test_packed_content_that_cannot_be_read_is_refused(content: str, says: str) -> None:
    assert says in refusal(content, {"content_encoding": "gzip+base64"})
    assert says in refusal(envelope(content, encoding="gzip+base64"))


def test_an_unknown_encoding_is_refused() -> None:
    assert "content_encoding is br" in refusal("x", {"content_encoding": "br"})


def test_base64_may_be_wrapped_in_lines() -> None:
    content = base64.encodebytes(gzip.compress(json.dumps(PAYLOAD).encode())).decode()
    assert decode_message(content, {"content_encoding": "gzip+base64"}).payload == PAYLOAD


def test_a_gzip_bomb_is_found_out_at_the_bound_and_costs_no_more_memory() -> None:
    """sources.md §9 row 13: 1 MiB that would be 1 GiB."""
    compress = zlib.compressobj(9, wbits=-15)
    block = compress.compress(bytes(16 * 1024 * 1024)) + compress.flush(zlib.Z_FULL_FLUSH)
    bomb = b"\x1f\x8b\x08" + bytes(7) + block * 64
    assert len(bomb) < COMPRESSED_BYTES + 32 * 1024
    content = base64.b64encode(bomb[:COMPRESSED_BYTES]).decode()
    tracemalloc.start()
    try:
        says = refusal(content, {"content_encoding": "gzip+base64"})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert says == f"the content unpacks to more than {BODY_BYTES} bytes"
    assert peak < BODY_BYTES + 5 * COMPRESSED_BYTES


@pytest.mark.parametrize("item", [b"[]", b"{}", b"0", b'""'])
def test_json_that_would_become_millions_of_objects_is_refused_before_it_is_read(item: bytes) -> None:
    body = b'{"a":[' + b",".join([item] * 6_000_000) + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(BadMessage, match=r"more than \d+ values|at most"):
            parse_object(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1024 * 1024


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"hello", "not JSON"),
        (b"object_kind=note", "not JSON"),
        (b"[]", "not a list"),
        (b"7", "not a number"),
        (b"null", "not null"),
        (b"true", "not true or false"),
        (b'"x"', "not a text"),
        (b"\xff\xfe{}", "not UTF-8"),
        ('{"a": "é"}'.encode("latin-1"), "not UTF-8"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": 1e999}', "out of range"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"a": 1, "a": 2}', "the key a stands twice"),
        (b'{"x": [{"b": 1, "a": 2, "b": 3}]}', "the key b stands twice"),
        (b'{"a": "\x00"}', "not JSON"),
        (b"\x00", "not JSON"),
        (b'{"a":' * 100_000, "nests deeper"),
        (b"[" * 100_000 + b"]" * 100_000, "nests deeper"),
        (b'{"a":' * (DEPTH + 1) + b"1" + b"}" * (DEPTH + 1), "nests deeper"),
        (b"{}" + b" " * BODY_BYTES, "at most 26214400"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(raw: bytes, says: str) -> None:
    """ingest.md §7 rows 222 to 224."""
    with pytest.raises(BadMessage) as caught:
        parse_object(raw)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("item", [b'{"a":0}', b"[0]", b'"x"', b"1.5"])
def test_a_small_message_that_unpacks_to_millions_of_values_is_refused(item: bytes) -> None:
    raw = b'{"a":[' + b",".join([item] * 2_499_990) + b"]}"
    packed = base64.b64encode(gzip.compress(raw)).decode()
    with pytest.raises(BadMessage, match="more than 200000 values"):
        decode_message(packed, {"content_encoding": "gzip+base64"})


@pytest.mark.parametrize("text", ["1,[2],{3}\n" * 100_000, 'say \\"a,b\\" ' * 90_000])
def test_a_table_in_a_description_is_no_reason_to_refuse_an_event(text: str) -> None:
    assert parse_object(json.dumps({"object_kind": "x", "a": text}).encode())["a"] == text


@pytest.mark.parametrize("end", ["", "\\", '\\"' * 200_000])
def test_a_text_without_an_end_costs_no_more_than_any_other(end: str) -> None:
    with pytest.raises(BadMessage, match="not JSON"):
        parse_object(b'{"a": "' + b"," * 300_000 + end.encode())


def test_the_id_of_a_delivery_is_short_enough_for_a_log() -> None:
    envelope = json.dumps({"Type": "Notification", "MessageId": "i" * 100_000, "Message": "{}"})
    assert len(decode_message(envelope, {}).delivery) == 100


def test_lone_surrogates_are_replaced_in_names_and_texts() -> None:
    """ingest.md §7 row 225."""
    value = parse_object(b'{"a\\ud800": [{"b": "x\\udfffy"}], "c": "\\ud83d\\ude00"}')
    assert value == {"a\ufffd": [{"b": "x\ufffdy"}], "c": "😀"}
    json.dumps(value, ensure_ascii=False).encode()


def test_a_byte_order_mark_and_nesting_at_the_bound_are_read() -> None:
    assert parse_object(b"\xef\xbb\xbf{}") == {}
    parse_object(b'{"a":' * DEPTH + b"1" + b"}" * DEPTH)


def test_a_body_beyond_the_bound_is_refused_before_it_is_encoded() -> None:
    assert (
        refusal("😀" * (BODY_BYTES + 1))
        == f"the body has {BODY_BYTES + 1} characters, at most {BODY_BYTES} bytes are read"
    )


def test_a_body_that_is_no_unicode_is_refused() -> None:
    assert refusal('{"a": "\ud800"}') == "the body is not Unicode text (character 7)"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=5)


@given(st.text(), st.text(), OBJECTS, st.text())
def test_what_is_encoded_is_decoded_again(source: str, kind: str, payload: dict[str, Any], delivery: str) -> None:
    event = Event(source or "gitlab", kind, payload, delivery[:100])
    assert decode_message(encode_envelope(event, now=NOW), {}) == event


@given(
    st.text() | st.builds(json.dumps, JSON), st.dictionaries(st.sampled_from(["source", "content_encoding"]), st.text())
)
def test_any_message_is_an_event_or_bad(body: str, attributes: dict[str, str]) -> None:
    with contextlib.suppress(BadMessage):
        assert isinstance(decode_message(body, attributes).payload, dict)


@given(st.binary())
def test_any_bytes_are_an_object_or_bad(raw: bytes) -> None:
    with contextlib.suppress(BadMessage):
        assert isinstance(parse_object(raw), dict)


def test_numbers_keep_their_value() -> None:
    assert parse_object(b'{"a": 9007199254740993, "b": 1.5e300}') == {"a": 9007199254740993, "b": 1.5e300}
    assert math.isclose(parse_object(b'{"a": 1E-400}')["a"], 0.0)
