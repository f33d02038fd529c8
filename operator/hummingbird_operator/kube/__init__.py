"""Alone talks to the API server."""
