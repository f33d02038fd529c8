"""Claude on Vertex AI as it is served: shapes, rules, thinking, prompt cache and answers, per model.

Where nobody has published a rule's words, the text says plainly what is wrong. Stricter than Anthropic, on purpose,
in five points: a thinking block of another model is refused (Anthropic may drop it silently), no marker stands on a
`web_search_tool_result` or inside a tool result, the automatic top-level `cache_control` and URL sources do not exist,
no system message stands where a server tool's result is pending, and results of parallel calls must stand in one
message.
"""
