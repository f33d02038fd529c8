"""Gemini: the Gemini API and Vertex AI."""
