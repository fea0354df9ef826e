"""The body of a chat completion: a subset of OpenAI's, with vLLM's `priority`."""

import re
from typing import TypeVar

import msgspec

from engines.endpoint.lengths import typed_tokens
from engines.endpoint.protocol import Refusal

_Body = TypeVar("_Body", bound=msgspec.Struct)
_FIELD = re.compile(r" - at `\$\.(\w+)")


class _Part(msgspec.Struct):
    text: str
    type: str = "text"


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return " ".join(part.text for part in self.content)
        return self.content or ""


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class ChatRequest(msgspec.Struct):
    """The fields of a body that are read. Others (tools, temperature) are ignored. `priority`: as vLLM's, the lower is
    served first."""

    messages: list[_Message]
    stream: bool = False
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int = 1
    priority: int = 0

    @property
    def limit(self) -> int | None:
        """Text tokens of the reply; None: no limit."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def prompt_tokens(self) -> int:
        return max(1, sum(typed_tokens(message.text) for message in self.messages))


def read_body(body: bytes, kind: type[_Body], what: str) -> _Body:
    """Read a body. Raises Refusal, whose `param` names the wrong field. `what`: the name of `kind`, in words."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        field = _FIELD.search(str(error))
        raise Refusal(f"this is no {what}: {error}", "invalid_value", field[1] if field else None) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refusal(f"the body is no JSON: {error}", "invalid_json") from None


def chat_request(body: bytes, max_model_len: int, system_tokens: int = 0, truncate: bool = False) -> ChatRequest:
    """Read a chat completion's body. Raises Refusal, whose `param` names the wrong field, for lengths in vLLM's words.
    `system_tokens`: of every prompt, in front of the messages. `truncate`: messages of any length are served."""
    request = read_body(body, ChatRequest, "chat completion")
    if not request.messages:
        raise Refusal("messages is empty; say something.", param="messages")
    if request.n != 1:
        raise Refusal(f"n is {request.n}, and this server gives one reply; set 1.", param="n")
    for name in ("max_tokens", "max_completion_tokens"):
        tokens = getattr(request, name)
        if tokens is not None and tokens < 1:
            raise Refusal(f"{name} is {tokens}; set 1 or more.", param=name)
        if tokens is not None and tokens > max_model_len:
            raise Refusal(
                f"{name}={tokens} cannot be greater than max_model_len={max_model_len}. Please request fewer output "
                "tokens.",
                param=name,
            )
    prompt = system_tokens + request.prompt_tokens
    if prompt >= max_model_len and not truncate:
        why = ", which exceeds this limit even without any output tokens" if prompt > max_model_len else ""
        raise Refusal(
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains {prompt} "
            f"input tokens{why}. Please reduce the length of the input prompt.",
            param="input_tokens",
        )
    return request
