"""What the texts of a note are made of: the footer, the folded transcript, and other people's words made harmless."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from hummingbird_operator.delivery.cleaning import clean
from hummingbird_operator.delivery.inert import MAXIMUM, inert_block, make_inert, one_line
from hummingbird_operator.delivery.redact import redact
from hummingbird_operator.forges.notes import TRANSCRIPT_SUMMARY

TRANSCRIPT_CHARACTERS = 90_000
"""At most so much of the transcript stands in a note (seed 000 §9.1); the session store has all of it."""

GREEN_SINCE = "The pipeline has turned green since."
_TEXT_CHARACTERS = MAXIMUM - TRANSCRIPT_CHARACTERS - 20_000
_SHOWN_INCOMPLETE = 10


@dataclass(frozen=True)
class Footer:
    """What stands under an answer. Tokens are totals of the run; `sha` is the head it looked at.

    `cost_usd` None: not known. `cost_is_ceiling`: the model has no price, so the highest rate was charged.
    `incomplete` names what could not be read, in words for people.
    """

    model: str
    turns: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    sha: str | None = None
    cost_is_ceiling: bool = False
    incomplete: Sequence[str] = ()
    pipeline_green: bool = False

    def lines(self, secrets: Sequence[str] = ()) -> list[str]:
        """The footer as paragraphs of markdown."""
        facts = [
            f"Model {one_line(self.model, limit=100)}",
            count(self.turns, "turn"),
            f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out",
            _cost(self.cost_usd, self.cost_is_ceiling),
            f"commit {one_line(self.sha, limit=64)[:12]}" if self.sha else "",
        ]
        paragraphs = [GREEN_SINCE] if self.pipeline_green else []
        paragraphs += (
            [_not_read([without_secrets(entry, secrets) for entry in self.incomplete])] if self.incomplete else []
        )
        return [*paragraphs, " · ".join(fact for fact in facts if fact)]


def below(footer: Footer, transcript: str, prompt: str, secrets: Sequence[str]) -> list[str]:
    """What stands under a text, as paragraphs; `prompt` invites to go on."""
    return ["---", *footer.lines(secrets), prompt, *transcript_block(transcript, secrets)]


def transcript_block(transcript: str, secrets: Sequence[str]) -> list[str]:
    """The transcript, folded; nothing where there is none."""
    if not transcript.strip():
        return []
    block = inert_block(without_secrets(transcript, secrets), limit=TRANSCRIPT_CHARACTERS, language="markdown")
    return [f"<details><summary>{TRANSCRIPT_SUMMARY}</summary>", block, "</details>"]


def inert(text: str, secrets: Sequence[str], limit: int = _TEXT_CHARACTERS) -> str:
    """Inert, and empty where nothing would be seen. Never stripped: what stands before a slash keeps it harmless."""
    shown = make_inert(without_secrets(text, secrets), limit=limit)
    return shown if shown.strip() else ""


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """Cleaned first, so that a hidden character cannot split a secret; cut only afterwards, so that no half is left."""
    return redact(clean(text), secrets)


def sentences(notices: Sequence[str], secrets: Sequence[str]) -> list[str]:
    """Remarks above an answer, a paragraph each."""
    return [f"*{one_line(without_secrets(notice, secrets), limit=500)}*" for notice in notices if notice.strip()]


def _not_read(incomplete: Sequence[str]) -> str:
    shown = [one_line(entry, limit=200) for entry in incomplete[:_SHOWN_INCOMPLETE]]
    more = len(incomplete) - len(shown)
    return "Not read: " + "; ".join([*shown, f"and {more} more"] if more else shown) + "."


def _cost(cost: Decimal | None, is_ceiling: bool) -> str:
    if cost is None:
        return "cost unknown"
    amount = f"${cost:.4f}" if cost < 1 else f"${cost:.2f}"
    return f"at most {amount} (the model has no price here)" if is_ceiling else amount


def count(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it must be."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
