"""Secrets leave neither as they are nor in the forms that logs give them."""

from __future__ import annotations

import time

import pytest

from hummingbird_operator.delivery.redact import REDACTED, redact

# Built from pieces, so that no scanner takes this file for a leak.
TOKENS = [
    "glpat-" + "a1B2" * 5,
    "ghp_" + "a1B2" * 9,
    "AKIA" + "ABCD1234" * 2,
    "AIza" + "a1B2c" * 7,
    "sk-ant-" + "a1B2" * 8,
    "xoxb-" + "12345678901",
    "eyJ" + "hbGciOiJI" * 2 + ".eyJ" + "zdWIiOiIx" * 2 + "." + "c2lnbmF0dXJl",
]


@pytest.mark.parametrize("token", TOKENS)
def test_common_tokens_are_taken_out(token: str) -> None:
    assert redact(f"export TOKEN={token}; echo") == f"export TOKEN={REDACTED}; echo"


def test_a_known_secret_is_taken_out_as_it_is_and_as_it_stands_in_a_url() -> None:
    assert redact("p=s3cr/t+x q=s3cr%2Ft%2Bx", ["s3cr/t+x"]) == f"p={REDACTED} q={REDACTED}"


def test_of_a_secret_with_several_lines_each_long_line_is_taken_out() -> None:
    secret = "apiVersion: v1\nclient-key-data: abcdefghijklmnop\n"
    assert redact("x client-key-data: abcdefghijklmnop y", [secret]) == f"x {REDACTED} y"


def test_a_short_secret_does_not_tear_words_apart() -> None:
    assert redact("abc", ["a", ""]) == "abc"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcdefgh1234", f"Authorization: Bearer {REDACTED}"),
        ('"private-token": "abcdefgh"', f'"private-token": "{REDACTED}"'),
        ("https://user:hunter2@host/x", f"https://user:{REDACTED}@host/x"),
    ],
)
def test_headers_and_passwords_in_addresses_are_taken_out(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_a_private_key_is_taken_out_also_when_its_end_is_missing() -> None:
    begin, end = "-----BEGIN RSA PRIVATE " + "KEY-----", "-----END RSA PRIVATE " + "KEY-----"
    assert redact(f"a {begin}\nMIIE\n{end} b") == f"a {REDACTED} b"
    assert redact(f"a {begin}\nMIIE") == f"a {REDACTED}"


def test_ordinary_text_is_left_alone() -> None:
    text = "the task-runner at https://example.com/a:b failed, see sk-learn and authorization: none"
    assert redact(text) == text


def test_hostile_text_does_not_make_it_slow() -> None:
    begin = time.perf_counter()
    for text in ("-----BEGIN PRIVATE " + "KEY-----", "://a:", "authorization: ", "eyJ", "glpat-"):
        redact(text * (1_000_000 // len(text)))
    assert time.perf_counter() - begin < 20


def test_a_web_token_behind_a_dash_or_in_a_longer_word_is_taken_out_alone() -> None:
    token = TOKENS[-1]
    assert redact(f"jwt-{token}, x.{token}") == f"jwt-{REDACTED}, x.{REDACTED}"
    assert redact(f"a_{token}") == f"a_{token}"
