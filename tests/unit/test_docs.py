"""What the code offers is documented: settings here, conditions beside their models."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hummingbird_operator import config

ROOT = Path(__file__).parents[2]
SECTIONS = [
    value
    for value in vars(config).values()
    if isinstance(value, type) and issubclass(value, config.Section) and value is not config.Section
]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_setting_stands_in_the_configuration_page_with_its_meaning(section: type[config.Section]) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    for name, field in section.model_fields.items():
        assert field.description, f"{section.__name__}.{name} has no docstring"
        rows = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert any(line.endswith(f"| {field.description} |") for line in rows), f"{section.__name__}.{name}"


def test_every_page_of_docs_is_reachable_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    missing = [page.name for page in sorted((ROOT / "docs").glob("*.md")) if f"docs/{page.name}" not in readme]
    assert missing == []


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_to_a_file_and_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        there = page.parent / target if target else page
        assert there.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in headings(there), f"{page.name} links to {target}#{anchor}"


def headings(page: Path) -> set[str]:
    """As GitHub and GitLab name them in an address."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}
