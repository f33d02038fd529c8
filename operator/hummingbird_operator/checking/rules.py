"""trigger_rules that can never do what they were written for."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from fnmatch import fnmatchcase

from hummingbird_operator.config import TriggerRule, WorkflowEntry
from hummingbird_operator.config.globs import covers, is_regular
from hummingbird_operator.ingest.route import ENDED
from hummingbird_operator.ingest.rules import FAILED


def of_rules(where: str, entry: WorkflowEntry) -> Iterator[str]:
    """A sentence for each of them."""
    rules = entry.trigger_rules
    if rules is None:
        return
    if entry.action == "manual":
        yield f"{where}: nothing starts the workflow by itself; give it an action (pipeline, merge_request)"
        return
    of_pipeline = entry.action == "pipeline"
    allowing = [rule for rule in rules if rule.action == "allow"]
    if not allowing:
        yield f"{where}: no rule allows anything, so nothing starts it; end the list with {{action: allow}}"
    elif not of_pipeline and all(rule.status is not None for rule in allowing):
        yield f"{where}: every rule that allows names a status, which merge requests have not: nothing starts it"
    for number, rule in enumerate(rules):
        if of_pipeline and rule.status is not None:
            yield from _status(f"{where}[{number}].status", rule.status)
        for field, glob in (("branch", rule.branch), ("title", rule.title), ("user", rule.user)):
            if glob and is_regular(glob):
                yield f"{where}[{number}].{field}: {glob} looks like a regular expression; it is a glob, such as fix/*"
        before = next((n for n in range(number) if _covers(rules[n], rule, of_pipeline=of_pipeline)), None)
        if before is not None:
            yield f"{where}[{number}]: is never reached, for [{before}] decides whatever it fits"


def _status(where: str, glob: str) -> Iterator[str]:
    if any(fnmatchcase(status, glob) for status in ENDED):
        return
    close = difflib.get_close_matches(glob, sorted(ENDED), n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    yield f"{where}: {glob} is no status that a pipeline ends with ({', '.join(sorted(ENDED))}){meant}"


def _covers(first: TriggerRule, second: TriggerRule, *, of_pipeline: bool) -> bool:
    """Whether all that the second fits, the first does too. Says no where it is not sure."""
    by_status = _fits_all(first.status or FAILED, second.status or FAILED)
    status = by_status if of_pipeline else first.status is None
    globs = ((first.user, second.user), (first.branch, second.branch), (first.title, second.title))
    return status and all(_fits_all(a, b) for a, b in globs) and first.fork in (None, second.fork)


def _fits_all(glob: str | None, other: str | None) -> bool:
    return covers(glob or "*", other or "*")
