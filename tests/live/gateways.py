"""What stands before servers: certificates of a test authority, a gateway with TLS and a path prefix, and proxies."""

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
T = TypeVar("T")


class Authority:
    """Writes PEM files into `folder`: its own certificate `ca`, and those that it signs."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signed = self._builder(self._name, self._key, 0).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(_pem(signed.sign(self._key, hashes.SHA256())))

    def certificate(self, *names: str, expired_days: int = 0) -> Path:
        """A file with a certificate for hosts of these names, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        others = x509.SubjectAlternativeName([_general(name) for name in names])
        signed = self._builder(subject, key, expired_days).add_extension(others, critical=False)
        path = self._folder / f"{names[0]}-{expired_days}.pem"
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(_pem(signed.sign(self._key, hashes.SHA256())) + text)
        return path

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, expired_days: int
    ) -> x509.CertificateBuilder:
        until = datetime.datetime.now(datetime.UTC) + DAY - expired_days * DAY
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(until - 9 * DAY)
            .not_valid_after(until)
        )


def server_tls(certificate: Path, clients: Path | None = None) -> ssl.SSLContext:
    """The TLS of a server, which wants a certificate of an authority in `clients`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=clients)
    context.load_cert_chain(certificate)
    context.verify_mode = ssl.CERT_REQUIRED if clients else ssl.CERT_NONE
    return context


@dataclass
class Proxy:
    """A proxy that wants CONNECT, at `port`; only it knows where the hosts in `ports` are. `asked`: first lines of the
    requests, and their headers of authorization."""

    ports: Mapping[str, int]
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    refuses: str = ""
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, headers = await _head(reader)
        self.asked.append((first, headers.get("proxy-authorization")))
        host, _, port = first.split()[1].partition(":")
        if self.refuses:
            writer.write(b"HTTP/1.1 %s\r\n\r\n" % self.refuses.encode())
            writer.close()
            return
        other = await asyncio.open_connection("127.0.0.1", self.ports.get(host) or int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_pump(reader, other[1]), _pump(other[0], writer))


@dataclass
class Socks:
    """A proxy by SOCKS 5 that looks up names itself; `asked`: hosts and ports."""

    ports: Mapping[str, int]
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly((await reader.readexactly(2))[1])
        writer.write(b"\x05\x00")
        length = (await reader.readexactly(5))[4]
        host = (await reader.readexactly(length)).decode()
        self.asked.append((host, int.from_bytes(await reader.readexactly(2))))
        other = await asyncio.open_connection("127.0.0.1", self.ports[host])
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await asyncio.gather(_pump(reader, other[1]), _pump(other[0], writer))


@dataclass
class Gateway:
    """Hands requests below `prefix` on to the server at `behind`, if they have these `headers`."""

    behind: int
    prefix: str
    headers: Mapping[str, str]
    paths: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other = await asyncio.open_connection("127.0.0.1", self.behind)
        back = asyncio.create_task(_pump(other[0], writer))
        while True:
            first, headers = await _head(reader)
            method, path, _ = first.split()
            self.paths.append(path)
            wanted = all(headers.get(name) == value for name, value in self.headers.items())
            if not path.startswith(f"{self.prefix}/") or not wanted or path.endswith("/metrics"):
                status = b"401 No Key" if not wanted else b"404 Not Found"
                writer.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % status)
                continue
            lines = [f"{method} {path.removeprefix(self.prefix)} HTTP/1.1"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            other[1].write("\r\n".join([*lines, "", ""]).encode())
            other[1].write(await reader.readexactly(int(headers.get("content-length", 0))))
            if "upgrade" in headers:
                await asyncio.gather(_pump(reader, other[1]), back)
                return


class Serves(Protocol):
    """Handles one connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...


@asynccontextmanager
async def listening(server: Serves, tls: ssl.SSLContext | None = None, path: Path | None = None) -> AsyncIterator[int]:
    """The port at which `server` listens; 0 where that is a Unix socket at `path`."""

    async def handled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):  # asyncio would log the last
            await server.serve(reader, writer)
        writer.close()

    if path is not None:
        opened: Any = await asyncio.start_unix_server(handled, path, ssl=tls)
    else:
        opened = await asyncio.start_server(handled, "127.0.0.1", 0, ssl=tls)
    yield 0 if path is not None else opened.sockets[0].getsockname()[1]
    opened.close()


@contextmanager
def in_a_thread(context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """What `context` yields, on a loop of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    stack = contextlib.AsyncExitStack()
    try:
        yield asyncio.run_coroutine_threadsafe(stack.enter_async_context(context), loop).result(20)
    finally:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)


async def _head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    return first, {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.close()


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
