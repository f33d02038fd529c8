"""Who may post events: signing tokens and plain tokens, several at once, and headers of any shape."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hummingbird_operator.ingest.webhook import signatures
from hummingbird_operator.ingest.webhook.signatures import Verdict

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
SIGNING = "whsec_" + base64.b64encode(KEY).decode()
OTHER_SIGNING = "whsec_" + base64.b64encode(OTHER_KEY).decode()
BODY = b'{"object_kind": "note",  "text": "\xc3\xa9"}'


def headers(body: bytes = BODY, *, key: bytes = KEY, at: float | None = None) -> dict[str, str]:
    """As GitLab makes them, by the words of the specification and not by our library."""
    stamp = str(int(time.time() if at is None else at))
    digest = hmac.new(key, b"msg-1." + stamp.encode() + b"." + body, hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(digest).decode()
    return {"webhook-id": "msg-1", "webhook-timestamp": stamp, "webhook-signature": signature}


def test_a_signature_is_checked_over_the_exact_bytes() -> None:
    assert signatures.by_signature(BODY, headers(), [SIGNING]) is Verdict.VALID
    assert signatures.by_signature(BODY.replace(b"  ", b" "), headers(), [SIGNING]) is Verdict.WRONG_SIGNATURE


def test_any_of_several_signing_tokens_is_right_and_a_removed_one_is_not() -> None:
    signed = headers(key=OTHER_KEY)
    assert signatures.by_signature(BODY, signed, [SIGNING, OTHER_SIGNING]) is Verdict.VALID
    assert signatures.by_signature(BODY, signed, [SIGNING]) is Verdict.WRONG_SIGNATURE


@pytest.mark.parametrize(("seconds", "verdict"), [(-290, Verdict.VALID), (290, Verdict.VALID)])
def test_a_clock_may_be_five_minutes_off(seconds: int, verdict: Verdict) -> None:
    assert signatures.by_signature(BODY, headers(at=time.time() + seconds), [SIGNING]) is verdict


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_an_old_or_future_signature_is_refused_and_the_clock_is_named(seconds: int) -> None:
    verdict = signatures.by_signature(BODY, headers(at=time.time() + seconds), [SIGNING])
    assert verdict is Verdict.WRONG_SIGNATURE
    assert "five minutes" in verdict


def test_the_signature_decides_alone_where_a_signing_token_is_known() -> None:
    both = {**headers(key=OTHER_KEY), "x-gitlab-token": "plain-token"}
    assert signatures.signed(both, [SIGNING, "plain-token"])
    assert signatures.by_signature(BODY, both, [SIGNING, "plain-token"]) is Verdict.WRONG_SIGNATURE
    assert not signatures.signed(both, ["plain-token"]), "nobody here could check the signature"
    assert not signatures.signed({"x-gitlab-token": "plain-token"}, [SIGNING, "plain-token"])


def test_one_missing_signature_header_is_no_way_round_it() -> None:
    for name in signatures.SIGNATURE_HEADERS:
        rest = {key: value for key, value in headers().items() if key != name}
        assert signatures.signed(rest, [SIGNING])
        assert signatures.by_signature(BODY, rest, [SIGNING]) is Verdict.MISSING


def test_any_of_several_tokens_is_right_and_no_other() -> None:
    secrets = ["first-token", "zweites-wört", SIGNING]
    assert signatures.by_token({"x-gitlab-token": "first-token"}, secrets) is Verdict.VALID
    sent = "zweites-wört".encode().decode("latin-1")  # as the bytes of a header arrive
    assert signatures.by_token({"x-gitlab-token": sent}, secrets) is Verdict.VALID
    assert signatures.by_token({"x-gitlab-token": "first-toke"}, secrets) is Verdict.WRONG_TOKEN
    assert signatures.by_token({"x-gitlab-token": "\xff\xfe"}, secrets) is Verdict.WRONG_TOKEN
    assert signatures.by_token({}, secrets) is Verdict.MISSING


def test_a_signing_token_is_no_plain_token() -> None:
    assert signatures.by_token({"x-gitlab-token": SIGNING}, [SIGNING]) is Verdict.MISSING


def test_no_secret_admits_nobody() -> None:
    for secrets in ([], [""]):
        assert signatures.by_token({"x-gitlab-token": ""}, secrets) is Verdict.MISSING
        assert signatures.by_signature(BODY, headers(), secrets) is not Verdict.VALID


def test_a_body_that_is_not_text_is_told_apart() -> None:
    assert signatures.by_signature(b"\xff", headers(b"\xff"), [SIGNING]) is Verdict.NOT_TEXT


@pytest.mark.parametrize("secret", ["whsec_" + "YWJj" * 7 + "YWI=", "whsec_" + "YWJj" * 9 + " YWJj"])
def test_a_signing_token_that_is_too_short_or_not_all_base64_is_not_usable(secret: str) -> None:
    assert not signatures.usable(secret)
    assert signatures.usable("whsec_" + "YWJj" * 8), "24 bytes"
    assert signatures.usable("whsec_" + "YWJj" * 8 + "YQ"), "without padding, as the library takes it"


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_é", "whsec_!"])
def test_a_secret_that_checks_nothing_is_known_as_such(secret: str) -> None:
    assert not signatures.usable(secret)
    assert signatures.by_signature(BODY, headers(), [secret]) is Verdict.WRONG_SIGNATURE or not secret


def test_a_usable_secret_is_usable() -> None:
    assert signatures.usable(SIGNING)
    assert signatures.usable("plain-token")


HEADER = st.text(st.characters(max_codepoint=255), max_size=40)


@given(
    st.binary(max_size=60), st.dictionaries(st.sampled_from([*signatures.SIGNATURE_HEADERS, "x-gitlab-token"]), HEADER)
)
def test_headers_and_bodies_of_any_shape_are_refused_and_never_raise(body: bytes, sent: dict[str, str]) -> None:
    secrets = [SIGNING, "whsec_x", "plain-token-é"]
    assert signatures.by_signature(body, sent, secrets) is not Verdict.VALID
    assert signatures.by_token(sent, secrets) is not Verdict.VALID


@given(st.text(max_size=60), HEADER, HEADER)
def test_a_right_clock_does_not_help_any_other_signature(body: str, signature: str, message: str) -> None:
    sent = {"webhook-id": message, "webhook-timestamp": str(int(time.time())), "webhook-signature": signature}
    assert signatures.by_signature(body.encode(), sent, [SIGNING]) is not Verdict.VALID
