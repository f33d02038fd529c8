"""What the providers publish about their wire formats, as checks of whole bodies. For tests only.

`gemini` rests on Google's discovery document and the types of google-genai, `claude` on the types of anthropic. No
oracle knows the order of messages, ids, markers or signatures: the servers of `hummingbird_ai.testing` check those.
"""
