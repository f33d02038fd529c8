"""What the configuration opens to the engine: a model with its key and prices, data sources with their read tokens.

Secrets are read at use, so that a rotated file needs no restart; the token that writes notes never comes here.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Protocol

from hummingbird_ai import models
from hummingbird_operator.agentruns.paying import GuardedModel
from hummingbird_operator.errors import Invalid
from hummingbird_operator.sources import gitlab

if TYPE_CHECKING:
    from collections.abc import Callable

    from hummingbird_ai.messages import ModelAdapter
    from hummingbird_ai.pricing import Prices
    from hummingbird_operator.agentruns.resolve import Order
    from hummingbird_operator.sessions.tools import ToolRegistry
    from hummingbird_operator.settings import Settings


SOURCES = ("gitlab",)
"""Data sources that this version can open; the schema of the configuration already knows the others."""


class Doors(Protocol):
    """What the operator's configuration opens to the engine."""

    def model(self, name: str) -> ModelAdapter:
        """The model of that name. Raises Invalid."""

    def worst_case(self, name: str, *, input_tokens: int, max_output_tokens: int) -> Decimal:
        """The most that one call can cost, in US dollars."""

    def window(self, name: str) -> int:
        """Tokens that the model can see."""

    def sources(self, registry: ToolRegistry, order: Order, sleep: Callable[[float], object]) -> None:
        """Register the workflow's data sources, with their own read tokens; `sleep` ends when the run does.

        Raises Invalid.
        """


class ConfiguredDoors:
    """Implements `Doors` from the settings."""

    def __init__(
        self,
        settings: Settings,
        check: Callable[[], None] = lambda: None,
        bot: Callable[[], int] | None = None,
    ) -> None:
        """`check` raises where this process may not pay for a model's answer; `bot` tells who writes the notes."""
        self._check = check
        self._bot = bot
        self._settings = settings
        self._config = settings.config.models
        self._auth = models.VertexAuth(self._config.google_cloud_project)
        """One token for all runs of this process; looked up by the first run that needs it."""
        self._prices: Prices = {
            name: {str(kind): usd for kind, usd in price.items()} for name, price in self._config.prices.items()
        }

    def model(self, name: str) -> ModelAdapter:
        """A fresh adapter, with the key as it is now."""
        try:
            model = models.build_model(
                name,
                google_api_key=self._key(),
                model_regions=self._config.regions,
                prices=self._prices,
                base_url=self._config.endpoint,
                auth=self._auth,
            )
        except models.ModelError as error:
            raise Invalid("model", error.problem) from error
        except ValueError as error:
            raise Invalid("model", str(error)) from error
        return GuardedModel(model, self._check)

    def worst_case(self, name: str, *, input_tokens: int, max_output_tokens: int) -> Decimal:
        """At its provider's highest rate where the model has no price of its own."""
        return models.worst_case_cost(
            name, input_tokens=input_tokens, max_output_tokens=max_output_tokens, prices=self._prices
        )

    def has_price(self, name: str) -> bool:
        """Whether the cost of this model is known."""
        return models.has_price(name, self._prices)

    def window(self, name: str) -> int:
        """Tokens that the model can see."""
        return models.context_window(name)

    def sources(self, registry: ToolRegistry, order: Order, sleep: Callable[[float], object]) -> None:
        """Register what the workflow names and nothing else."""
        for source in order.workflow.entry.data_sources:
            if source not in SOURCES:
                raise Invalid(
                    f"workflows.{order.workflow.name}.data_sources", f"{source} is not served by this version"
                )
            if order.target is None or self._settings.config.gitlab is None:
                continue  # there is no project to read
            config = self._settings.config.gitlab
            gitlab.register(
                registry,
                url=config.url,
                token=partial(self._read_token, order),
                project=order.target.project,
                merge_request=order.target.merge_request,
                internal=order.internal,
                bot=self._bot,
                ca=str(config.ca_file) if config.ca_file else None,
                sleep=sleep,
            )

    def check(self, order: Order) -> None:
        """Raise Invalid, before anything is spent, where a secret or a model that the order needs is not to be had."""
        self.model(order.resolved.model or "")
        if "gitlab" in order.workflow.entry.data_sources and order.target is not None:
            self._read_token(order)

    def _key(self) -> str:
        env, file = self._config.google_api_key_env, self._config.google_api_key_file
        if env is None and file is None:
            return ""
        return self._settings.secret("models.google_api_key_env", env=env, file=file)

    def _read_token(self, order: Order) -> str:
        assert order.target is not None  # noqa: S101 - only targets have a project
        path = order.target.project
        project = self._settings.config.project(path)
        source = order.workflow.entry.data_sources["gitlab"]
        env = (project.tokens.get("gitlab") if project else None) or source.token_env
        where = f"projects.{path}.tokens.gitlab"
        if env is None:
            text = (
                f"workflow {order.workflow.name} reads GitLab, but neither project nor data source names a read token"
            )
            raise Invalid(where, f"{text} (the one that writes notes is never used for reading)")
        return self._settings.secret(where, env=env)
