"""Every error a model call raises, named after what a person or the caller can do about it.

    ModelError
    ├── Transient            the same call may work later (retryable)
    │   ├── RateLimited      too many calls for now
    │   ├── Overloaded       the provider is ill or full
    │   ├── TransportFailed  the connection did not hold
    │   └── MalformedReply   an answer that cannot be read
    │       └── Rejected     an answer that the caller's validation did not take
    ├── QuotaExhausted       the quota or the money of the day is used up
    ├── AuthFailed           the key or the credentials are not accepted
    ├── ContextOverflow      the conversation is longer than the model's window
    ├── RequestTooLarge      more bytes than the provider takes
    ├── Refused              the provider's policy
    ├── BadRequest           the request itself is wrong: model name, region, schema, history
    ├── Unfinished           the provider's own tools did not come to an end
    └── CallAborted          the caller ended it

No message, repr or cause carries a key or a token, and at most 500 characters of a provider's body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from hummingbird_ai.messages import ModelResponse


class ModelError(Exception):
    """The root. `status` is the HTTP status if there was one, `retry_after` the provider's own hint in seconds.

    `billed` holds the passes of this call that were answered, and are paid for, before it failed.
    """

    retryable: bool = False
    """The same call may work later. A provider may say otherwise of a single error (`x-should-retry`)."""
    advice: ClassVar[str] = "See the provider's message."

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(f"{message.rstrip('. ')}. {self.advice}")
        self.problem = message
        self.status = status
        self.retry_after = retry_after
        self.billed: ModelResponse | None = None

    @property
    def word(self) -> str:
        """The class in snake case, for metrics and conditions: `rate_limited`."""
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in type(self).__name__)[1:]


class Transient(ModelError):
    """The same call may work later."""

    retryable = True
    advice = "If it goes on after retries, look at the provider's status page."


class RateLimited(Transient):
    """Too many calls or tokens per minute, or a shared capacity that is used up for now."""

    advice = (
        "If it goes on after retries, run fewer agents at once, ask for more quota, or on Vertex AI "
        "use the region `global`."
    )


class Overloaded(Transient):
    """The provider answers with an error of its own."""


class TransportFailed(Transient):
    """The connection could not be made or did not hold."""

    advice = "If it goes on after retries, check the network, the proxy and the address."


class MalformedReply(Transient):
    """An answer that cannot be read."""

    advice = "If it goes on after retries, check that no proxy answers in the provider's place."


class Rejected(MalformedReply):
    """An answer that the caller's validation did not take; it is paid for, as `on_billed` and the metrics say."""

    advice = "If it goes on, ask for what the validation wants more plainly, or mend the validation."


class QuotaExhausted(ModelError):
    """The quota of the day or the money is used up: waiting a minute does not help."""

    advice = "Wait for the next day's quota, raise it, or mend the billing account of the project."


class AuthFailed(ModelError):
    """The key or the credentials are missing, wrong, or not allowed to use this model."""

    advice = "Check the API key, or for Vertex AI the credentials, the project and the role `Vertex AI User`."


class ContextOverflow(ModelError):
    """The conversation is longer than the model's context window."""

    advice = "Start a new session, fetch less into the conversation, or take a model with a larger window."


class RequestTooLarge(ModelError):
    """The request has more bytes than the provider takes."""

    advice = "Keep large results in the sandbox's files instead of in the conversation."


class Refused(ModelError):
    """The provider's policy forbids it: the same request is refused again."""

    advice = "Rephrase the request or the prompt; the provider's policy decides."


class BadRequest(ModelError):
    """The request itself is wrong: model name, region, tool schema or history."""

    advice = "The same request fails again: mend what the message names (model, region, address, tools or history)."


class Unfinished(ModelError):
    """The provider went on with its own tools beyond the passes one answer may take."""

    advice = "Ask for less at once, or turn the provider's web search off."


class CallAborted(ModelError):
    """The caller ended it; `reason` is what was given to `Abort.set`."""

    advice = "Nothing needs mending."

    def __init__(self, reason: str) -> None:
        super().__init__(f"the model call was ended: {reason}")
        self.reason = reason
