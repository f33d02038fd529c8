from __future__ import annotations

import json

from hummingbird_operator.sessions import prompts


def test_the_system_prompt_is_base_then_notes_then_body() -> None:
    prompt = prompts.system_prompt("## Data Source Notes\n\nA note.", "# Workflow\n\nDo it.\n")
    assert prompt.startswith(prompts.BASE_SYSTEM_PROMPT.strip())
    assert prompt.endswith("\n\n## Data Source Notes\n\nA note.\n\n# Workflow\n\nDo it.\n")
    assert "\n\n\n" not in prompts.system_prompt("", "Do it.")


def test_the_first_message_is_json_with_what_there_is() -> None:
    assert json.loads(prompts.first_message("group/app", 42, "9f2c", 'why "arm64"?')) == {
        "project": "group/app",
        "iid": 42,
        "sha": "9f2c",
        "message": 'why "arm64"?',
    }
    assert json.loads(prompts.first_message(None, None, None, None)) == {}


def test_a_continuation_tells_the_model_not_to_start_over_and_ends_with_the_person_s_words() -> None:
    message = prompts.continuation_message("and arm64?")
    assert "Do NOT re-run the full workflow" in message
    assert message.endswith("\n\nand arm64?")


def test_the_base_prompt_names_the_tools_and_fields_that_exist() -> None:
    for word in ("sandbox_exec", "fetch_to_sandbox", "fetch_batch_to_sandbox", "/tmp/data", "`error`", "`incomplete`"):
        assert word in prompts.BASE_SYSTEM_PROMPT
