"""Every request of these tests that a provider server accepts goes before the oracle of its provider."""

from tests.oracles.requests import requests_pass_their_oracle

__all__ = ["requests_pass_their_oracle"]
