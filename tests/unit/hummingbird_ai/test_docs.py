"""The library's page runs as printed, with servers on loopback in the providers' place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[3] / "docs" / "models.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def snippet(words: str) -> str:
    (found,) = [code for code in SNIPPETS if words in code]
    return str(found)


def test_the_agent_of_the_page_runs_against_both_servers_of_the_page() -> None:
    names: dict[str, Any] = {}
    said: list[str] = []

    exec(snippet("def agent("), names)  # noqa: S102 - it is what the reader will do
    agent = names["agent"]
    names["agent"] = lambda *given: said.append(agent(*given))
    exec(snippet("with ClaudeServer(script)"), names)  # noqa: S102

    assert said == ["done", "done"]


def test_a_stored_conversation_of_the_page_goes_on() -> None:
    from hummingbird_ai import models

    model = models.build_model("gemini-3.8-flash", google_api_key="k")
    names: dict[str, Any] = {"models": models, "model": model, "contents": [model.make_user_content("go")]}

    exec("import json\n" + snippet("later.from_canonical"), names)  # noqa: S102

    assert [content["role"] for content in names["contents"]] == ["user", "user"]


def test_the_scripted_model_of_the_page_is_one() -> None:
    from hummingbird_ai import models

    names: dict[str, Any] = {"models": models}
    exec(snippet("model = ScriptedModel("), names)  # noqa: S102

    answer = names["model"].generate([names["model"].make_user_content("go")], system="", tools=[])

    assert answer.tool_calls[0].name == "run"
