"""What the code offers is documented: settings here, conditions beside their models."""

from __future__ import annotations

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


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    import re

    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
