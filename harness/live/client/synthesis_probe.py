"""One word of speech before a run: whether the address makes any. What the user can mend is refused in one sentence."""

from harness.live.client.synthesis_endpoint import request_body, speech_pool
from harness.live.client.text_probe import LATER, Answer, ask, said_words
from harness.live.dialects.detect import refused_token
from harness.live.target import TargetParams
from workloads.errors import UserError


async def ask_one_word(target: TargetParams) -> None:
    """UserError when `target` makes no speech, whatever its load. One that is busy, slow or broken is not refused."""
    answer, reason = await ask(speech_pool(target), request_body("word", target), target)
    why = None if reason is None else _why_not(target, answer, reason)
    if why is not None:
        raise UserError(f"url {target.url} {why}")


def _why_not(target: TargetParams, answer: Answer, reason: str) -> str | None:
    code = answer.code
    said = f"HTTP status {code}{said_words(answer.body)}"
    if code in (401, 403):
        return refused_token(code)
    if code in (404, 405, 501):
        return (
            f"has no speech synthesis there ({said}); correct its path, often /v1/audio/speech, or set model."
        )
    if 300 <= code < 500 and code not in LATER:
        return f"makes no speech as it is asked ({said}); correct what it names, such as model or voice."
    if code == 200 and not answer.body:
        return "answers, but with no audio; see the server's log."
    if code == 200 and answer.body.startswith((b"{", b"data:", b"RIFF", b"ID3")):
        return "answers, but not with plain samples (response_format pcm); take a server that streams them."
    if not code and reason:
        return f"has no speech synthesis there (no HTTP answer: {reason}); correct its address."
    return None
