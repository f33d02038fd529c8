# ruff: noqa: A005 - inside a package, the name takes nothing from the standard library
"""The queue that events wait in, as the consumer and the webhook see it, and Amazon SQS behind it.

boto3 runs in threads of its own, which nothing else can use up: a lease must be extended also while GitLab hangs.
Each call has a short timeout and is made once: whoever calls backs off by itself and knows how long that takes.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError, ParamValidationError

from hummingbird_operator.errors import HummingbirdError, Invalid, Unavailable

SERVICE = "SQS"
WHERE = "ingest.queue_url"
POLL_SECONDS = 10
"""Longest wait of one receive; a stopping process waits for it."""
CALL_SECONDS = 10.0
"""Longest silence of a call that does not poll."""
THREADS = 16
LONGEST_TOTAL_SECONDS = 43_200
"""A message may be held for 12 hours after its receipt, whatever is asked for."""

_LOST = {"ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue"}
_EXPIRED_TOKEN = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_SKEW = ("Signature expired", "Signature not yet current")
_RIGHTS = "allow sqs:ReceiveMessage, DeleteMessage, ChangeMessageVisibility, GetQueueAttributes, SendMessage on it"
_ADVICE = {
    "NonExistentQueue": "the queue does not exist; create it, or mend the address",
    "QueueDoesNotExist": "the queue does not exist; create it, or mend the address",
    "InvalidAddress": "is not the address of a queue",
    "AccessDenied": f"access is denied; {_RIGHTS}",
    "AccessDeniedException": f"access is denied; {_RIGHTS}",
    "KmsAccessDenied": "access to the queue's key is denied; allow kms:Decrypt and kms:GenerateDataKey on it",
    "InvalidClientTokenId": "check the access key",
    "UnrecognizedClientException": "check the access key",
    "SignatureDoesNotMatch": "check the secret key and the machine's clock",
    "InvalidMessageContents": "the message holds characters that SQS refuses",
}
_NAME = re.compile(r"\A[!-~]{1,128}\Z")
_REGION = re.compile(r"^(?:sqs(?:-fips)?\.)?([a-z]{2,4}(?:-[a-z]+)+-[0-9])\.(?:queue\.)?amazonaws\.com")


@dataclass(frozen=True)
class Message:
    """One receipt of a message; a second receipt of the same message has the same `id` and another `handle`."""

    id: str
    handle: str
    body: str
    attributes: Mapping[str, str]
    """Message attributes that are text; raw SNS delivery puts its own there."""
    receives: int
    """How often it was received, this time included; lost answers and returned messages count."""


@dataclass(frozen=True)
class Traits:
    """What a queue is like."""

    fifo: bool
    """Messages of a group come one after the other."""
    dead_letters: bool
    """A RedrivePolicy takes messages away that were received too often."""


def region_of(url: str) -> str:
    """The region that a queue's address names; empty where it names none."""
    known = _REGION.match(urlsplit(url).hostname or "")
    return known[1] if known else ""


class Queue(Protocol):
    """A queue with leases. Every call raises Unavailable while it is away, Invalid where a person must act."""

    async def receive(self, count: int, *, wait: int, visibility: int) -> list[Message]:
        """Up to `count` (1 to 10) messages, each leased for `visibility` seconds; waits up to `wait` seconds."""

    async def delete(self, message: Message) -> str:
        """Take it off the queue; like the next two it gives an empty text, or why the lease is lost."""

    async def extend(self, message: Message, seconds: int) -> str:
        """Hold the lease for that long from now on."""

    async def release(self, message: Message, seconds: int = 0) -> str:
        """End the lease, so that the next one gets the message after `seconds`."""

    async def send(self, body: str, *, group: str, once: str) -> None:
        """Put a message on the queue. FIFO only: `group` is its lane, `once` its identity for five minutes."""

    async def traits(self) -> Traits:
        """Read now."""


class SqsQueue:
    """Amazon SQS, or what speaks its JSON protocol. boto3 finds credentials itself."""

    def __init__(
        self, url: str, *, endpoint: str | None = None, region: str = "", call_seconds: float = CALL_SECONDS
    ) -> None:
        """`endpoint` and `region` are derived from the queue's address where they are absent. Connects to nothing.

        Raises Invalid for what is no address.
        """
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise Invalid(WHERE, str(error)) from error
        amazon = "amazonaws.com" in parts.netloc
        self._url = url
        self._fifo = parts.path.endswith(".fifo")
        self._endpoint = endpoint or (None if amazon else f"{parts.scheme}://{parts.netloc}")
        self._region = region or region_of(url)
        self._call_seconds = call_seconds
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sqs")
        self._lock = threading.Lock()
        self._clients: _Clients | None = None
        self._attempt = ""

    async def receive(self, count: int, *, wait: int, visibility: int) -> list[Message]:
        """As the Protocol says. A FIFO receive whose answer was lost is repeated as the same attempt.

        SQS then gives the same messages again instead of hiding them for the length of a lease.
        """
        arguments: dict[str, Any] = {"MaxNumberOfMessages": count, "VisibilityTimeout": visibility}
        if self._fifo:
            self._attempt = self._attempt or uuid.uuid4().hex
            arguments["ReceiveRequestAttemptId"] = self._attempt
        answer = await self._call(
            "receive_message",
            WaitTimeSeconds=wait,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
            **arguments,
        )
        self._attempt = ""
        return [_message(found) for found in answer.get("Messages", [])]

    async def delete(self, message: Message) -> str:
        """As the Protocol says."""
        return await self._leased("delete_message", ReceiptHandle=message.handle)

    async def extend(self, message: Message, seconds: int) -> str:
        """As the Protocol says."""
        return await self._leased("change_message_visibility", ReceiptHandle=message.handle, VisibilityTimeout=seconds)

    async def release(self, message: Message, seconds: int = 0) -> str:
        """As the Protocol says."""
        return await self.extend(message, seconds)

    async def send(self, body: str, *, group: str, once: str) -> None:
        """As the Protocol says; raises Invalid for a text that SQS refuses, such as one above 1 MiB."""
        lane = {"MessageGroupId": _name(group), "MessageDeduplicationId": _name(once)} if self._fifo else {}
        await self._call("send_message", MessageBody=body, **lane)

    async def traits(self) -> Traits:
        """As the Protocol says."""
        answer = await self._call("get_queue_attributes", AttributeNames=["All"])
        found = answer.get("Attributes", {})
        self._fifo = self._fifo or found.get("FifoQueue") == "true"
        return Traits(fifo=self._fifo, dead_letters=bool(found.get("RedrivePolicy")))

    def close(self) -> None:
        """Start no thread any more; a call that still waits ends by its timeout."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _leased(self, name: str, **arguments: Any) -> str:
        try:
            await self._call(name, **arguments)
        except _LeaseLost as lost:
            return str(lost)
        return ""

    async def _call(self, name: str, **arguments: Any) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(self._call_now, name, arguments))

    def _call_now(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        clients: _Clients | None = None
        try:
            clients = self._clients_now(after=None)
            return clients.call(name, QueueUrl=self._url, **arguments)
        except (BotoCoreError, ClientError, OSError, ValueError) as error:
            if not _outdated(error):
                raise _described(name, error) from error
        # a machine that slept signed with an old time, or the credentials ran out: begin anew, once
        try:
            return self._clients_now(after=clients).call(name, QueueUrl=self._url, **arguments)
        except (BotoCoreError, ClientError, OSError, ValueError) as error:
            raise _described(name, error) from error

    def _clients_now(self, *, after: _Clients | None) -> _Clients:
        """The clients, made anew where `after` are still the current ones: many threads may meet the same error."""
        with self._lock:
            if self._clients is None or self._clients is after:
                self._clients = _Clients(self._endpoint, self._region, self._call_seconds)
            return self._clients


class _LeaseLost(HummingbirdError):
    """The handle is no longer good: the lease ran out, or the message is deleted."""


class _Clients:
    """Two clients, as a long poll needs more patience than a heartbeat has."""

    def __init__(self, endpoint: str | None, region: str, call_seconds: float) -> None:
        # a session of its own: the shared one keeps credentials that ran out, and is not for several threads
        make = partial(boto3.session.Session().client, "sqs", endpoint_url=endpoint, region_name=region or None)
        self._poll = make(config=_config(POLL_SECONDS + call_seconds))
        self._quick = make(config=_config(call_seconds))

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        client = self._poll if name == "receive_message" else self._quick
        method: Callable[..., dict[str, Any]] = getattr(client, name)
        return method(**arguments)


def _config(read_timeout: float) -> Config:
    return Config(
        connect_timeout=5,
        read_timeout=read_timeout,
        max_pool_connections=THREADS,
        retries={"total_max_attempts": 1, "mode": "standard"},
    )


def _message(found: Mapping[str, Any]) -> Message:
    named = found.get("MessageAttributes") or {}
    attributes = {name: str(value["StringValue"]) for name, value in named.items() if "StringValue" in value}
    receives = str((found.get("Attributes") or {}).get("ApproximateReceiveCount", ""))
    return Message(
        id=str(found.get("MessageId", "")),
        handle=str(found["ReceiptHandle"]),
        body=str(found.get("Body", "")),
        attributes=attributes,
        receives=int(receives) if receives.isdecimal() else 1,
    )


def _name(text: str) -> str:
    """As SQS takes it, which is up to 128 characters of printable ASCII without spaces."""
    return text if _NAME.match(text) else hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _outdated(error: Exception) -> bool:
    return isinstance(error, ClientError) and (
        _code(error) in _EXPIRED_TOKEN or any(sign in _text(error) for sign in _SKEW)
    )


def _described(name: str, error: Exception) -> HummingbirdError:
    """botocore's error as one of ours: whose turn it is decides."""
    if isinstance(error, NoRegionError):
        return Invalid("ingest.sqs_region", "is required, as the queue's address names no region")
    if isinstance(error, NoCredentialsError):
        return Invalid(WHERE, "there are no AWS credentials; give the pod a role, or the variables of boto3")
    if isinstance(error, ParamValidationError | ValueError):
        return Invalid(WHERE, f"{name}: {error}"[:400])
    if not isinstance(error, ClientError):
        return Unavailable(SERVICE, f"{name}: {error}"[:400])
    code, text = _code(error), f"{name}: {_code(error)}: {_text(error)}"[:400]
    if code in _LOST and name in ("delete_message", "change_message_visibility"):
        return _LeaseLost(text)
    if _outdated(error):
        return Unavailable(SERVICE, f"{text}; check the machine's clock and the credentials")
    if code in _ADVICE:
        return Invalid(WHERE, f"{_ADVICE[code]} ({text})")
    if code in _LOST or code in ("InvalidAttributeValue", "MissingParameter"):
        return Invalid(WHERE, text)
    return Unavailable(SERVICE, text, retry_after=_retry_after(error))


def _code(error: ClientError) -> str:
    # the JSON protocol says QueueDoesNotExist, the older one AWS.SimpleQueueService.NonExistentQueue
    return str(error.response.get("Error", {}).get("Code", "")).rsplit(".", 1)[-1]


def _text(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Message", ""))


def _retry_after(error: ClientError) -> float | None:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    value = str(headers.get("retry-after", ""))
    return float(value) if value.isdecimal() else None
