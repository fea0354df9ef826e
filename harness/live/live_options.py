"""The options of `rehearse live` that set a parameter. It imports nothing of ours, as any help loads it."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class LiveOption(NamedTuple):
    """An option: its help, the word for its value, and its name on the command line."""

    help: str
    metavar: str | None
    name: str


OPTIONS = {
    "url": LiveOption("ws(s):// realtime, or http(s):// chat completions or WebRTC offers.", "URL", "URL"),
    "dialect": LiveOption(
        "auto, openai, openai_webrtc, rehearsal, vllm, vllm_omni, sglang_omni, sglang_duplex, rtvi and "
        "rtvi_webrtc (Pipecat), gemini, twilio, telnyx, text, synthesis, or a package's (rehearse list dialects).",
        None, "--dialect"),
    "path": LiveOption("What users say; default: sentences of a synthesized voice.", "DIR", "--audio"),
    "data": LiveOption(
        "Text: conversations that users have, turn by turn (.json, .jsonl); default: words of ShareGPT's lengths.",
        "FILE", "--data"),
    "workload": LiveOption(
        "What users do; default: speech; where URL is http, sharegpt, or conversations with --data.",
        "NAME", "--workload"),
    "c": LiveOption(
        "Concurrent calls, all the time; default: 8; with --rate at most N at once.", "N[,N...]", "--sessions"),
    "rate": LiveOption("New calls per second instead, in an open loop.", "R[,R...]", "--rate"),
    "stop_after_s": LiveOption(
        "How long to send new turns; default: until the targets can be decided, at most 480.", "SECONDS", "--duration"),
    "seeds": LiveOption("Runs of each, each with users of its own; default: 1; 3 with --find.", "N", "--repeats"),
    "users_seed": LiveOption(
        "Seed of the users, such as that of an earlier run; default: drawn anew, and kept with the results.",
        "N", "--seed"),
    "same_users": LiveOption(
        "The same users at each load: loads are compared in pairs, and a server may have their prompts in its cache.",
        None, "--same-users"),
    "shards": LiveOption("Processes that call.", "P", "--shards"),
    "scrape": LiveOption("Prometheus metrics of the server, kept over time.", "URL", "--scrape"),
    "token_env": LiveOption(
        "Environment variable with the token or key; it is stored nowhere.", "NAME", "--token-env"),
    "extra_body": LiveOption(
        "More fields of each request; null leaves one of ours out.", "JSON|FILE", "--extra-body"),
    "headers": LiveOption(
        "Header of each request, as 'NAME: VALUE'; ${VARIABLE} is filled in and a secret never kept.",
        "HEADER", "--header"),
    "body_names": LiveOption("Another name of a field.", "FIELD=NAME", "--body-name"),
    "ca": LiveOption("Certificate authorities to trust (PEM).", "FILE", "--ca"),
    "insecure": LiveOption("Accept any certificate of the server; the answer says so.", None, "--insecure"),
    "client_cert": LiveOption("Certificate of the client (PEM), for URL's host.", "FILE", "--client-cert"),
    "client_key": LiveOption("Its key, if in another file.", "FILE", "--client-key"),
    "unix_socket": LiveOption("Unix socket on which URL's host listens.", "FILE", "--unix-socket"),
    "session": LiveOption("Realtime: more fields of session.update.", "FILE", "--session"),
    "save_audio": LiveOption(
        "Keep both sides of the first N calls of each run as stereo files; of workload duplex.", "N", "--save-audio"),
    "label": LiveOption(
        "The server's build; kept with the results and shown by report and compare.", "TEXT", "--label"),
}  # fmt: skip
"""The option that sets each parameter, of the target in the order in which they are stored."""
OPTIONS["sessions"] = OPTIONS["most"] = OPTIONS["c"]  # of frames, which have no closed loop; of an open loop


def written(name: str, value: Mapping[str, Any]) -> str:
    """Return a parameter that shapes requests as the command line has it."""
    option = OPTIONS[name].name
    if name == "headers":
        return " ".join(f"{option} '{header}: {text}'" for header, text in value.items())
    if name == "body_names":
        return " ".join(f"{option} {old}={new}" for old, new in value.items())
    return f"{option} '{json.dumps(value, ensure_ascii=False)}'"
