"""Claude on Vertex AI as it is served: shapes, rules, thinking, prompt cache and answers, per model.

Where nobody has published a rule's words, the text says plainly what is wrong. Stricter than Anthropic, on purpose:

- a thinking block of another model is refused (Anthropic may drop it silently), and so is an unknown type of block,
  unless this server made it;
- no marker stands on a `web_search_tool_result` or inside a tool result, and there is no automatic top-level one;
- no system message stands where a server tool's result is pending;
- `search_result` blocks, sources by URL or file, and betas in the body do not exist.

Not imitated: streaming, `count-tokens`, images' tokens, passes within one answer (their sums are for a script's
`usage` to state).
"""
