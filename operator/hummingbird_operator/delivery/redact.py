"""Take secrets out of text before it leaves: those that the process knows, and what looks like a common token."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

REDACTED = "[redacted]"
_SHORTEST = 6
"""A shorter secret is not searched for: it would tear ordinary words apart."""

_TOKENS = re.compile(
    r"\b(?:gl(?:pat|dt|rt|cbt|ptt|ft|imt|soat|agent|oas|ffct)-[A-Za-z0-9_\-.]{16,}"  # GitLab
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}"  # AWS access key ids
    r"|AIza[0-9A-Za-z_\-]{35}|ya29\.[0-9A-Za-z_\-]{20,}"  # Google
    r"|sk-(?:ant-|proj-)?[A-Za-z0-9_\-]{20,}"  # model providers
    r"|xox[abeoprs]-[A-Za-z0-9\-]{10,}"  # Slack
    r"|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_\-]{50,}|dckr_pat_[A-Za-z0-9_\-]{20,})"
)
# From the first letter of a run, so that none is read once for each place in it where a token could begin.
_WEB_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_\-])((?:(?!\beyJ)[A-Za-z0-9_\-])*+)"
    r"eyJ[A-Za-z0-9_\-]{10,}+\.eyJ[A-Za-z0-9_\-]{10,}+\.[A-Za-z0-9_\-]{10,}+"
)
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----")
_KEY_ENDS = re.compile(r"-----END [A-Z ]{0,30}PRIVATE KEY-----")
_LONGEST_KEY = 20_000
_HEADER = re.compile(
    r"(?i)\b((?:authorization|private-token|job-token|x-api-key)[\"']?\s*+[:=]\s*+[\"']?(?:bearer|basic)?\s*+)[^\s\"']{6,}"
)
_USERINFO = re.compile(r"(://[^\s/:@]{1,100}:)[^\s/@]{3,200}(?=@)")


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with `[redacted]` in place of each known secret (as it is and as it stands in a URL) and of tokens.

    Of a secret with several lines (a key, a kubeconfig) each long line is taken out as well.
    """
    for secret in sorted(_forms(secrets), key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    text = "".join(_without_keys(text))
    text = _TOKENS.sub(REDACTED, text)
    if "eyJ" in text:
        text = _WEB_TOKEN.sub(rf"\1{REDACTED}", text)
    text = _HEADER.sub(rf"\1{REDACTED}", text)
    return _USERINFO.sub(rf"\1{REDACTED}", text)


def _without_keys(text: str) -> Iterator[str]:
    """Private keys, also one that is cut off before its end."""
    position = 0
    while begin := _KEY_BEGINS.search(text, position):
        end = _KEY_ENDS.search(text, begin.end(), begin.end() + _LONGEST_KEY)
        yield text[position : begin.start()] + REDACTED
        position = end.end() if end else min(len(text), begin.end() + _LONGEST_KEY)
    yield text[position:]


def _forms(secrets: Iterable[str]) -> set[str]:
    forms: set[str] = set()
    for secret in secrets:
        lines = [line.strip() for line in secret.splitlines() if len(line.strip()) >= 16] if "\n" in secret else []
        for value in (secret, secret.strip(), *lines):
            forms |= {value, quote(value, safe="")}
    return {form for form in forms if len(form) >= _SHORTEST}
