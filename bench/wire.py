"""Stands between an operator and its API server: counts bytes, and writes down every request that passes.

The operator speaks plain HTTP to it, it speaks TLS to the server: so the requests of kopf are seen as well as those of
the operator's own client, which are all that its metrics count.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from demo.stage import Stage
from hummingbird_operator.kube.tls import TlsSocket

WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
PIECE = 1 << 16


@dataclass(frozen=True)
class Request:
    """One request as it left the operator; `at` is time.monotonic()."""

    at: float
    method: str
    path: str
    agent: str
    body: bytes

    @property
    def kind(self) -> str:
        """Such as `patch agentruns/status`, or `patch agentruns (kopf)`."""
        parts = self.path.split("?", 1)[0].strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        rest = rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest
        resource = "/".join([rest[0], *rest[2:]]) if rest else self.path
        by = "" if self.agent.startswith("hummingbird") else " (kopf)"
        return f"{WRITES.get(self.method, 'read')} {resource}{by}"

    @property
    def writes(self) -> bool:
        """It changes something. Leases are left out: they are renewed whether there are runs or not."""
        return self.method in WRITES and "/leases" not in self.path

    def settles(self, type_: str) -> bool:
        """It is the status write that makes this condition True."""
        if not self.path.endswith("/status") or not self.body.startswith(b"["):
            return False
        return any(
            condition["type"] == type_ and condition["status"] == "True"
            for operation in json.loads(self.body)
            if operation["path"] == "/status"
            for condition in operation["value"].get("conditions", ())
        )


@dataclass
class Parser:
    """Reads HTTP/1.1 requests out of what a client sends; after an upgrade it is no longer HTTP."""

    upgraded: bool = False
    _data: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[Request]:
        """The requests that are complete now."""
        if self.upgraded:
            return
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            start, *lines = self._data[:end].decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in lines)}
            stop = end + 4 + int(headers.get("content-length", 0))
            if len(self._data) < stop:
                return
            method, path, _ = start.split(" ", 2)
            yield Request(
                time.monotonic(), method, path, headers.get("user-agent", ""), bytes(self._data[end + 4 : stop])
            )
            del self._data[:stop]
            if "upgrade" in headers:
                self.upgraded = True
                return


class Relay:
    """A context manager; `url` is what the operator is told to talk to."""

    def __init__(self, server: str, ca: Path) -> None:
        split = urlsplit(server)
        self._server = (split.hostname or "", split.port or 443)
        self._tls = ssl.create_default_context(cafile=str(ca))
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._open: set[socket.socket | TlsSocket] = set()
        self._bytes = {"sent": 0, "received": 0, "in sandboxes": 0}
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, name="relay", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        with self._lock:
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def requests(self) -> list[Request]:
        """Everything so far."""
        with self._lock:
            return list(self._requests)

    def bytes(self) -> dict[str, int]:
        """So far, without TLS: `sent` by the operator, `received` by it, and of both what commands in sandboxes are."""
        with self._lock:
            return dict(self._bytes)

    def quiet(self, seconds: float = 1.5) -> None:
        """Wait until nothing was written for that long."""
        while self._last_write() > time.monotonic() - seconds:
            time.sleep(0.1)

    def _last_write(self) -> float:
        return max((request.at for request in self.requests() if request.writes), default=0.0)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._server) as plain:
            for end in (client, plain):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.closing(TlsSocket(plain, self._tls, self._server[0])) as server:
                self._both(client, server)

    def _both(self, client: socket.socket, server: TlsSocket) -> None:
        parser = Parser()
        with self._lock:
            self._open |= {client, server}
        down = threading.Thread(target=self._down, args=(client, server, parser), daemon=True)
        down.start()
        with contextlib.suppress(OSError):
            while data := client.recv(PIECE):
                found = list(parser.feed(data))
                with self._lock:
                    self._requests += found
                self._count("sent", len(data), parser)
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        down.join()
        with self._lock:
            self._open -= {client, server}

    def _down(self, client: socket.socket, server: TlsSocket, parser: Parser) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(PIECE):
                self._count("received", len(data), parser)
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _count(self, way: str, number: int, parser: Parser) -> None:
        with self._lock:
            self._bytes[way] += number
            self._bytes["in sandboxes"] += number if parser.upgraded else 0


@contextlib.contextmanager
def relayed(stage: Stage) -> Iterator[Relay]:
    """Operators that are started in this block talk to the API server through a relay; kubectl goes its own way."""
    config: dict[str, Any] = yaml.safe_load(stage.cluster.kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    path = stage.folder / "operator.kubeconfig"  # the stage makes one where there is none
    # a token in place of the admin's certificate, which could not pass a relay
    token = stage.kubectl("create", "token", "hummingbird-operator", "-n", stage.names.runs, "--duration=8h").strip()
    with Relay(cluster["server"], Path(cluster["certificate-authority"])) as relay:
        config["clusters"][0]["cluster"] = {"server": relay.url}
        config["users"][0]["user"] = {"token": token}
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        try:
            yield relay
        finally:
            path.unlink()
