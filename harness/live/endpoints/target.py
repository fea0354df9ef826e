"""The parameters of a target: which server a live run calls, and how. They are the server parameters of a live point.

A target holds no secret: a token or key comes from the environment variable that `token_env` names, when it is sent.
"""

from __future__ import annotations

import os
import re
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from harness.live.endpoints.request_shape import check_body, check_headers, filled_in, is_secret, names_secret, sendable
from harness.live.endpoints.transport.route import Route, check_proxy, proxy_of
from workloads.bounds import MOST_SEED
from workloads.errors import UserError, printable, unknown
from workloads.host_names import check_host
from workloads.plugins import entry_points

DIALECTS = {
    "openai": "OpenAI's Realtime API and compatible servers",
    "vllm_omni": "vLLM-Omni's duplex sessions",
    "vllm": "vLLM's own /v1/realtime (text out), vLLM-Omni's turns",
    "sglang_omni": "SGLang-Omni's turn-based sessions",
    "sglang_duplex": "SGLang-Omni's negotiated sessions, native duplex among them",
    "rtvi": "Pipecat bots: RTVI over a WebSocket",
    "openai_webrtc": "OpenAI's Realtime API over WebRTC",
    "rtvi_webrtc": "Pipecat bots: RTVI over WebRTC (SmallWebRTC)",
    "gemini": "Google's Gemini Live API",
    "twilio": "voice agents on the telephone: Twilio's Media Streams",
    "telnyx": "the same: Telnyx's media streaming",
    "rehearsal": "our own server",
    "text": "chat completions over HTTP",
    "synthesis": "text in, audio out, over HTTP or a WebSocket",
}
"""Protocols of ours, each with its servers."""
OFFERS = {"openai_webrtc": "/realtime/calls", "rtvi_webrtc": "/api/offer"}
"""Dialects over WebRTC, each with the end of the path at which its servers take offers."""
GROUP = "rehearsal.dialects"
"""Entry points of packages with dialects of their own: each names a `Dialect`."""


def dialect_names() -> tuple[str, ...]:
    """Return all dialects, ours and those of other packages, which are not imported."""
    return (*DIALECTS, *(entry.name for entry in entry_points(group=GROUP)))


TOKEN_ENV = "REHEARSAL_TOKEN"
"""Variable of the token where `token_env` is not given. [chosen]"""
OPENAI_TOKEN_ENV = "OPENAI_API_KEY"
"""The same for OpenAI's own hosts alone: many developers have it exported, and no other server may get it unasked.
[config: OpenAI's clients]"""


def check_secrets(url: str) -> None:
    """Raise UserError when a url holds a secret, which a record would keep. The sentence does not repeat it."""
    address, _, query = url.partition("?")
    address, _, fragment = address.partition("#")
    secret = "user or password" if "@" in address.rpartition("//")[2].partition("/")[0] else ""
    if any(is_secret(part) for part in re.split("[/;]", unquote(address))):
        secret = "in its path"
    for name, value in parse_qsl(f"{query}&{fragment}".replace("#", "&"), keep_blank_values=True):
        if is_secret(name):
            secret = "in its query"
        elif names_secret(name) or is_secret(value):
            secret = printable(name, 40)
    if secret:
        raise UserError(
            f"the url holds a secret ({secret}), and records keep their url; put it into an environment variable and "
            "name that with token_env."
        )


_NO_ADDRESS = "is no address; write for example ws://localhost:8765/v1/realtime or http://localhost:8000/v1"


def _own(default: None, **about: Any) -> Any:
    """Leave out of storage what is not set, so that points keep the ids that they had without it."""
    return Field(default, exclude_if=lambda value: value is None, **about)


class TargetParams(BaseModel):
    """The endpoint, its protocol, and the limits of the load generator."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(
        description="ws(s):// of a realtime endpoint, http(s):// of chat completions, /v1/audio/speech or WebRTC offers"
    )
    dialect: str = Field("auto", description="protocol that the endpoint speaks; auto: look at its first words")
    model: str | None = Field(None, description="model to ask for, where the endpoint has several")
    voice: str | None = Field(None, description="voice to ask for; default: the endpoint's own")
    modalities: Literal["audio", "text"] = Field("audio", description="what replies are asked for as")
    turn_detection: Literal["client", "server", "semantic"] | None = _own(
        None,
        description="who says that a turn has ended: the client, the server's own VAD, or its semantic detector; "
        "default: the client, but the server in dialects rtvi, sglang_omni, gemini, twilio and telnyx, over WebRTC and "
        "in workload duplex",
    )
    silence_duration_ms: int | None = _own(
        None, ge=0, le=10_000, description="server VAD: silence after which a turn is over; default: the server's own"
    )
    eagerness: Literal["low", "medium", "high", "auto"] | None = _own(
        None, description="semantic: how soon the server answers what may be unfinished; default: auto"
    )
    min_duration_s: float | None = _own(
        None, ge=0, le=10, description="dialect rehearsal: speech that it takes to cut a reply, s; default: any"
    )
    min_words: int | None = _own(
        None, ge=0, le=100, description="dialect rehearsal: words that it takes; default: none"
    )
    save_audio: int | None = _own(
        None, ge=1, le=100, description="workload duplex: keep the sound of both sides of the first N calls"
    )
    sample_rate: int | None = _own(
        None, ge=8000, le=192_000, description="synthesis: samples/s to ask for; default: 24000 are taken for granted"
    )
    words_per_s: float | None = _own(
        None, gt=0, le=1000, description="synthesis over WebSocket: words that go out per second; default: all at once"
    )
    chunk_ms: int = Field(20, ge=5, le=1000, description="audio in one message, ms")
    packet_loss: float | None = _own(
        None, ge=0, le=0.5, description="WebRTC: share of the packets that is lost, each way; default: 0"
    )
    packet_jitter_ms: float | None = _own(
        None, ge=0, le=1000, description="WebRTC: delay of each packet, evenly from 0 to this, ms; default: 0"
    )
    jitter_buffer_ms: float | None = _own(
        None, ge=0, le=1000, description="WebRTC: delay of the listener's jitter buffer, ms; default: 60"
    )
    connect_lead_s: float = Field(
        1.0, ge=0, le=60, description="open loop: a session connects this long before it is due, s"
    )
    connect_timeout_s: float = Field(10.0, gt=0, le=300, description="a connection that takes longer failed, s")
    send_delay_limit_ms: float = Field(
        20.0,
        gt=0,
        le=3_600_000,
        description="a send may be so late, ms; a point with more than 5 % later ones is INVALID",
    )
    stop_after_turns: int | None = _own(
        None,
        ge=1,
        le=1_000_000,
        description="judge the first N turns begun at full load, and end the run when each of them has ended; default: "
        "those of the whole run",
    )
    users_seed: int | None = _own(
        None,
        ge=0,
        le=MOST_SEED,
        description="seed that the users of each load and repeat are drawn from; default: the number of the repeat, so "
        "that the loads of all runs have the same users",
    )
    same_users: bool | None = _own(
        None, description="with users_seed: the same users at each load; default: other ones"
    )
    shards: int = Field(1, ge=1, le=256, description="processes that the sessions are dealt out to")
    token_env: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="environment variable that holds the token or key of url's host; default: REHEARSAL_TOKEN, or "
        "OPENAI_API_KEY for hosts of OpenAI",
    )
    scrape: str | None = Field(None, description="Prometheus address to poll during the run, http(s)://.../metrics")
    scrape_period_s: float | None = _own(
        None, ge=0.1, le=86_400, description="time between two polls of scrape, s; default: 1"
    )
    extra_body: dict[str, JsonValue] | None = _own(
        None, description="text and synthesis: more fields of each request; null leaves one of ours out"
    )
    body_names: dict[str, str] | None = _own(
        None, description="text and synthesis: other names of fields, such as {max_tokens: max_completion_tokens}"
    )
    headers: dict[str, str] | None = _own(
        None, description="more headers for url's host; ${NAME} stands for an environment variable, which is not kept"
    )
    ca: str | None = _own(
        None, description="PEM file of the certificate authorities to trust; default: those of the system"
    )
    insecure: bool | None = _own(None, description="accept any certificate of the server; the answer says so")
    client_cert: str | None = _own(None, description="PEM file of the certificate to show to url's host")
    client_key: str | None = _own(
        None, description="PEM file of its key, without a passphrase; default: in the same file"
    )
    unix_socket: str | None = _own(None, description="path of the Unix socket on which url's host listens")
    proxy: str | None = _own(
        None,
        description="http:// or socks5:// proxy for connections to url and text_url; default of the commands: that of "
        "HTTPS_PROXY, HTTP_PROXY and NO_PROXY. Its user and password are read from there and not kept",
    )
    session: dict[str, JsonValue] | None = _own(
        None,
        description="realtime: more fields of session.update, such as instructions, tools or audio; of Gemini's setup; "
        "of a telephone call's custom parameters",
    )
    chat_history: Literal["replies", "recorded"] | None = _own(
        None,
        description="text of workload conversations: whose replies the history of a conversation has, the server's own "
        "(replies) or those of the file; default: replies",
    )
    ignore_eos: bool = Field(False, description="text: ask for exactly output_tokens (vLLM's ignore_eos)")
    text_url: str | None = _own(
        None,
        description="http(s):// of chat completions for sessions without speech, such as agents next to "
        "voice, where url speaks",
    )
    hint: bool = Field(
        False,
        description="dialects openai and vllm_omni: say how long each reply is to be, for a server whose GPUs are "
        "modelled; dialect rehearsal always does",
    )

    @field_validator("dialect")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in (names := ("auto", *dialect_names())):
            raise unknown("dialect", value, names)
        return value

    @field_validator("url", "scrape", "text_url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            whole = bool(parts.hostname) and (parts.port is None or 0 < parts.port < 65536)
        except ValueError:
            raise ValueError(_NO_ADDRESS) from None
        if parts.scheme not in ("ws", "wss", "http", "https") or not whole:
            raise ValueError(_NO_ADDRESS)
        check_host(parts.hostname or "")
        return value

    @field_validator("proxy")
    @classmethod
    def _proxy(cls, value: str | None) -> str | None:
        if value is not None:
            check_proxy(value)
        return value

    @model_validator(mode="after")
    def _way(self) -> TargetParams:
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("client_key is the key of client_cert; set that too, or leave it out")
        if self.insecure and self.ca is not None:
            raise ValueError("insecure accepts any certificate, so that ca is not used; leave one of them out")
        if self.unix_socket is not None and self.proxy is not None:
            raise ValueError("unix_socket and proxy are two ways to one host; leave one of them out")
        return self

    @model_validator(mode="after")
    def _shape(self) -> TargetParams:
        check_headers(self.headers or {})
        for name in ("extra_body", "session"):
            check_body(getattr(self, name) or {}, name)
        if self.session is not None and self.is_http:
            raise ValueError("session is for a ws(s):// url; give extra_body for requests over http")
        for name in ("extra_body", "body_names"):
            if getattr(self, name) is not None and not self.is_http and self.text_url is None:
                raise ValueError(f"{name} is for an http(s):// url; give session for a realtime endpoint")
        return self

    @model_validator(mode="after")
    def _scheme(self) -> TargetParams:
        web = self.url.startswith(("http://", "https://"))
        if self.dialect == "text" and not web:
            raise ValueError("dialect=text needs an http(s):// url of chat completions")
        if self.dialect == "synthesis" and not self.synthesizes:
            raise ValueError("dialect=synthesis needs a url that ends with /audio/speech or /audio/speech/stream")
        if self.dialect in OFFERS and not web:
            raise ValueError(f"dialect={self.dialect} needs an http(s):// url, which takes offers")
        for name in ("packet_loss", "packet_jitter_ms", "jitter_buffer_ms"):
            if getattr(self, name) is not None and not self.is_webrtc:
                raise ValueError(f"{name} is for WebRTC; leave it out")
        if self.dialect not in ("text", "auto", "synthesis", *OFFERS) and web:
            raise ValueError(f"dialect={self.dialect} needs a ws(s):// url")
        if self.eagerness is not None and self.turn_detection != "semantic":
            raise ValueError("eagerness is of turn_detection=semantic; set that too, or leave it out")
        if self.silence_duration_ms is not None and self.turn_detection == "semantic":
            raise ValueError("silence_duration_ms is of turn_detection=server; leave it out")
        if self.text_url is not None and web and not self.is_webrtc:
            raise ValueError("text_url is for typed sessions next to a ws(s):// url; leave it out")
        for name in ("scrape", "text_url"):
            address = getattr(self, name)
            if address is not None and not address.startswith(("http://", "https://")):
                raise ValueError(f"{name} needs an http(s):// address")
        return self

    @property
    def is_text(self) -> bool:
        """True for chat completions over HTTP."""
        return self.is_http and not self.synthesizes

    @property
    def is_http(self) -> bool:
        """True over HTTP; everything else is a WebSocket, or WebRTC."""
        return self.url.startswith(("http://", "https://")) and not self.is_webrtc

    @property
    def is_webrtc(self) -> bool:
        """True over WebRTC, with the offer over HTTP."""
        offers = urlsplit(self.url).path.rstrip("/").endswith(tuple(OFFERS.values()))
        return self.dialect in OFFERS or (self.dialect == "auto" and offers)

    @property
    def synthesizes(self) -> bool:
        """True for speech from text: /v1/audio/speech, or its /stream over a WebSocket."""
        return urlsplit(self.url).path.rstrip("/").endswith(("/audio/speech", "/audio/speech/stream"))

    @property
    def addresses(self) -> list[str]:
        """All addresses that a run calls."""
        return [url for url in (self.url, self.text_url, self.scrape) if url is not None]

    def route(self, address: str | None = None) -> Route:
        """Return how to connect to `address` (default: the url). Proxy, Unix socket and client's certificate are for
        the url's host; another one is called by the proxy that the environment names for it."""
        insecure = bool(self.insecure)
        if address is not None and not self.is_own_host(address):
            return Route(self.ca, insecure, proxy=proxy_of(address))
        return Route(
            self.ca, insecure, self.client_cert, self.client_key, unix_socket=self.unix_socket, proxy=self.proxy
        )

    def is_own_host(self, address: str) -> bool:
        """Return whether an address is of the url's host."""
        return urlsplit(address).hostname == urlsplit(self.url).hostname

    def token(self) -> str | None:
        """Return the token or key to send, from the environment; None: there is none. UserError when `token_env` names
        a variable that is not set. It is never kept, logged or printed."""
        if self.token_env is not None:
            value = os.environ.get(self.token_env)
            if not value:
                lacks = "not set" if value is None else "empty"
                raise UserError(
                    f"token_env={self.token_env}: this environment variable is {lacks}; set it, or leave token_env out."
                )
            return sendable(self.token_env, value)
        name = self.token_name()
        return None if name is None else sendable(name, os.environ[name])

    def request_headers(self) -> dict[str, str]:
        """Return the headers that go to the url's host: the one that sends `token`, and the user's own."""
        own, token = filled_in(self.headers or {}), self.token()
        if token is None or "authorization" in map(str.lower, own):
            return own
        return {"Authorization": f"Bearer {token}", **own}

    def token_name(self) -> str | None:
        """Return the environment variable whose token is sent; None: none is."""
        if self.token_env is not None:
            return self.token_env
        names = (TOKEN_ENV, OPENAI_TOKEN_ENV) if is_openai(self.url) else (TOKEN_ENV,)
        return next((name for name in names if os.environ.get(name)), None)

    def token_env_at(self, address: str) -> str | None:
        """Return `token_env` for another target of the run; None where that is on another host, or without TLS while
        the url is with it. The target there then has only the tokens that are its own by default."""
        mine, other = urlsplit(self.url), urlsplit(address)
        same = mine.hostname == other.hostname and (is_encrypted(address) or not is_encrypted(self.url))
        return self.token_env if same else None

    def scrape_token(self) -> str | None:
        """Return the token for the target's metrics; None where another server has them, by its host, its port or its
        encryption: only the target gets the token."""
        if self.scrape is None or _server(self.scrape) != _server(self.url):
            return None
        return self.token()


def is_encrypted(url: str) -> bool:
    """Return whether it is a url with TLS."""
    return urlsplit(url).scheme in ("https", "wss")


def is_openai(url: str) -> bool:
    """Return whether OpenAI itself answers there: a host below openai.com, with TLS. Azure and others have hosts of
    their own."""
    return is_encrypted(url) and (urlsplit(url).hostname or "").endswith(".openai.com")


def _server(url: str) -> tuple[str | None, int, bool]:
    parts, encrypted = urlsplit(url), is_encrypted(url)
    return parts.hostname, parts.port or (443 if encrypted else 80), encrypted
