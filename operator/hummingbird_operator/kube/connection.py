"""Where the API server is and how to prove who we are: one answer for the async client and for exec websockets.

In a pod the mounted token is read again every minute, because kubelets rotate it. Outside of one the kubeconfig
is loaded by the Kubernetes client library (client certificates, tokens, exec plugins) and loaded once more
whenever the server answers 401, so that a rotated file or an expired plugin token needs no restart.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.aio import config as kube_config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

from hummingbird_operator.errors import Invalid

MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_READ_SECONDS = 60.0


class TokenFile:
    """The value of an `Authorization` header, read from a mounted token at most once a minute. Thread-safe."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._value = ""
        self._read_at = float("-inf")

    def __call__(self) -> str:
        """`Bearer …`. Raises OSError when the file cannot be read and was never read before."""
        with self._lock:
            if self._clock() - self._read_at >= TOKEN_READ_SECONDS:
                try:
                    self._value = "Bearer " + self._path.read_text().strip()
                    self._read_at = self._clock()
                except OSError:  # the kubelet swaps the file: the old token lives on for a while
                    if not self._value:
                        raise
            return self._value


@dataclass(frozen=True)
class Access:
    """One loaded answer: the library's configuration, a TLS context (None for plain http) and the header's source."""

    configuration: Any
    tls: ssl.SSLContext | None
    authorization: Callable[[], str | None]


class Endpoint:
    """The API server to talk to. `access` is swapped as a whole by `reload`, so readers need no lock."""

    def __init__(self, access: Access, *, kubeconfig: str | None = None, context: str | None = None) -> None:
        self.access = access
        self._kubeconfig = kubeconfig
        self._context = context

    @classmethod
    async def load(cls, *, kubeconfig: str | None, context: str | None = None, mount: Path = MOUNT) -> Endpoint:
        """From the named kubeconfig, else from the pod's mount. Raises Invalid with what is missing."""
        if kubeconfig is None:
            return cls(_in_cluster(mount))
        return cls(await _loaded(kubeconfig, context), kubeconfig=kubeconfig, context=context)

    @property
    def server(self) -> str:
        """Base URL without a trailing slash."""
        return str(self.access.configuration.host).rstrip("/")

    @property
    def server_name(self) -> str | None:
        """The name to check in the server's certificate, where it is not the host of `server`."""
        name = self.access.configuration.tls_server_name
        return str(name) if name else None

    async def reload(self) -> bool:
        """Load the kubeconfig again (after a 401). False in a pod, where the token file is read anyway."""
        if self._kubeconfig is None:
            return False
        self.access = await _loaded(self._kubeconfig, self._context)
        return True


def _in_cluster(mount: Path) -> Access:
    token = TokenFile(mount / "token")
    configuration = Configuration()
    try:
        loader: Any = InClusterConfigLoader  # the library is not typed
        loader(str(mount / "token"), str(mount / "ca.crt")).load_and_set(configuration)
        token()
    except (kube_config.ConfigException, OSError) as error:
        raise Invalid("kubeconfig", f"none was named and this is not a pod with a service account: {error}") from error
    return Access(configuration, _tls(configuration), token)


async def _loaded(path: str, context: str | None) -> Access:
    """In a thread: the library's loader is a coroutine that reads and writes files like any function."""
    return await asyncio.to_thread(asyncio.run, _from_kubeconfig(path, context))


async def _from_kubeconfig(path: str, context: str | None) -> Access:
    configuration = Configuration()
    try:
        await kube_config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=path, context=context, client_configuration=configuration, persist_config=False
        )
        tls = _tls(configuration)
    except (kube_config.ConfigException, OSError, TypeError, ValueError) as error:
        raise Invalid("kubeconfig", f"{path} cannot be used: {error}") from error
    header = configuration.api_key.get("BearerToken")
    return Access(configuration, tls, lambda: header)


def _tls(configuration: Any) -> ssl.SSLContext | None:
    if not str(configuration.host).startswith("https"):
        return None
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
