"""Rules in the kernel: one of ours, and those that kube-router leaves behind when it ends."""

from __future__ import annotations

import re

from cluster.commands import attempt, run
from cluster.config import MASQUERADE_MARK, POD_RANGE
from cluster.errors import StartFailed

_CHAINS = re.compile(r"^KUBE-(ROUTER-|NWPLCY-|POD-FW-)")
_SETS = re.compile(r"^(inet6:)?(kube-router-|KUBE-(SRC|DST)-)")
_RULE = (
    "POSTROUTING", "-s", POD_RANGE, "!", "-d", POD_RANGE, "-m", "comment", "--comment", MASQUERADE_MARK,
    "-j", "MASQUERADE",
)  # fmt: skip


def masquerade() -> None:
    """Let pods reach what is outside of their range."""
    hint = "The kernel must offer iptables' nat table."
    run(["iptables", "-w", "-t", "nat", "-A", *_RULE], error=StartFailed, hint=hint)


def removal(saved: str) -> str:
    """The input for `iptables-restore --noflush` that takes out what is ours, given `iptables-save`'s output."""
    tables: list[str] = []
    for block in re.split(r"^(?=\*)", saved, flags=re.MULTILINE)[1:]:
        lines = block.splitlines()
        chains = [line[1:].split()[0] for line in lines if line.startswith(":")]
        chains = [name for name in chains if _CHAINS.match(name)]
        rules = [line for line in lines if line.startswith("-A ") and line.split()[1] not in chains]
        ours = [f"-D {rule[3:]}" for rule in rules if _is_ours(rule, chains)]
        if ours or chains:
            # Flush all before the first -X: a chain to which another one still jumps cannot go.
            body = [*ours, *(f"-F {name}" for name in chains), *(f"-X {name}" for name in chains)]
            tables.append("\n".join([lines[0], *body, "COMMIT"]))
    return "".join(f"{table}\n" for table in tables)


def _is_ours(rule: str, chains: list[str]) -> bool:
    words = rule.split()
    target = words[words.index("-j") + 1] if "-j" in words else ""
    return target in chains or MASQUERADE_MARK in rule


def is_enforced() -> bool:
    """Whether kube-router has written its first rules."""
    return attempt(["iptables", "-w", "-S", "KUBE-ROUTER-FORWARD"]) is not None


def clean() -> None:
    """Take out what is ours. Tools that are missing have left nothing."""
    for family in ("iptables", "ip6tables"):
        saved = attempt([f"{family}-save"])
        change = removal(saved) if saved else ""
        if change:
            attempt([f"{family}-restore", "-w", "--noflush"], stdin=change)
    names = [name for name in (attempt(["ipset", "list", "-n"]) or "").split() if _SETS.match(name)]
    # Sets of the `list` type hold others: a second round takes what the first could not.
    for name in names + names:
        attempt(["ipset", "destroy", name])
