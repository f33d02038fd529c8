"""Model calls to Gemini and Claude through one normalised, synchronous interface."""
