"""Whether a webhook comes from GitLab: a Standard Webhooks signature, or the plain X-Gitlab-Token. Pure, never raises.

A secret that begins with `whsec_` is a signing token, any other a token; several of each may be right at once, while
one is rotated. Where a signature is there and a signing token is known, the signature decides alone: a token beside it
is sent in the clear.
GitLab: `webhook-signature` is `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping, Sequence
from enum import StrEnum

from standardwebhooks import Webhook
from standardwebhooks.webhooks import EmptyWebhookSecretError, WebhookVerificationError

SIGNING_PREFIX = "whsec_"
SIGNING_BYTES = 24
"""The least of a signing key, as Standard Webhooks has it: who sees one delivery may try keys at leisure."""
TOKEN_HEADER = "x-gitlab-token"  # noqa: S105 - the name of a header
SIGNATURE_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")


class Verdict(StrEnum):
    """What is to be said to the sender; only VALID lets the body in."""

    VALID = "valid"
    MISSING = "neither a signature nor a token that could be checked"
    WRONG_TOKEN = "the token is none of ours"  # noqa: S105
    WRONG_SIGNATURE = "the signature is not ours, or its timestamp is more than five minutes away from our clock"
    NOT_TEXT = "the body is not UTF-8, which no signature covers"


def usable(secret: str) -> bool:
    """Whether the secret can check anything: a signing token is base64 of SIGNING_BYTES or more behind its prefix.

    Strictly so: the library skips what is no base64, and would check by another key than GitLab signs with.
    """
    if not secret.startswith(SIGNING_PREFIX):
        return bool(secret)
    text = secret.removeprefix(SIGNING_PREFIX).rstrip("=")
    try:
        return len(base64.b64decode(text + "=" * (-len(text) % 4), validate=True)) >= SIGNING_BYTES
    except ValueError:
        return False


def signed(headers: Mapping[str, str], secrets: Sequence[str]) -> bool:
    """Whether a signature decides. `headers`: names in lower case. The body is wanted for the verdict only then."""
    return any(name in headers for name in SIGNATURE_HEADERS) and any(s.startswith(SIGNING_PREFIX) for s in secrets)


def complete(headers: Mapping[str, str]) -> bool:
    """Whether a signature could be right at all: known before the body is read."""
    return all(headers.get(name) for name in SIGNATURE_HEADERS)


def by_token(headers: Mapping[str, str], secrets: Sequence[str]) -> Verdict:
    """The verdict on X-Gitlab-Token alone: needs no body, so that a stranger's is never read."""
    tokens = [secret.encode() for secret in secrets if secret and not secret.startswith(SIGNING_PREFIX)]
    given = headers.get(TOKEN_HEADER)
    if not tokens or not given:
        return Verdict.MISSING
    # As bytes: compare_digest refuses text beyond ASCII. Header bytes arrive as latin-1, GitLab sends UTF-8.
    presented = given.encode("latin-1", errors="replace")
    matches = [hmac.compare_digest(presented, token) for token in tokens]  # all of them: no early end to measure
    return Verdict.VALID if any(matches) else Verdict.WRONG_TOKEN


def by_signature(body: bytes, headers: Mapping[str, str], secrets: Sequence[str]) -> Verdict:
    """The verdict on the exact bytes of the body, by each signing token; five minutes of tolerance to both sides."""
    if not complete(headers):
        return Verdict.MISSING
    try:
        body.decode()
    except UnicodeDecodeError:
        return Verdict.NOT_TEXT
    signers = [_signer(secret) for secret in secrets if secret.startswith(SIGNING_PREFIX)]
    matches = [_matches(signer, body, headers) for signer in signers if signer is not None]
    return Verdict.VALID if any(matches) else Verdict.WRONG_SIGNATURE


def _signer(secret: str) -> Webhook | None:
    try:
        return Webhook(secret)
    except (EmptyWebhookSecretError, ValueError):  # not base64
        return None


def _matches(signer: Webhook, body: bytes, headers: Mapping[str, str]) -> bool:
    try:
        signer.verify(body, dict(headers), json_parse=False)
    except (WebhookVerificationError, ValueError, OverflowError, TypeError):  # a header of any shape
        return False
    return True
