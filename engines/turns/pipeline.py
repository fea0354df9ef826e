"""The stages of a speaking model: thinker -> talker -> vocoder, with asynchronous chunks between them.

Each stage replica has its own engine loop and vLLM scheduler. The thinker's text goes to the talker token by token (the
talker starts on the first and takes one with every frame); the talker's codec frames go to the vocoder in chunks, each
decoded together with frames before it (`CodecChunks`). A talker that speaks segments gets a request for each, as soon
as its text is complete, and sends the audio itself. A model without a talker is a pipeline of one stage; a model that
only speaks begins with the talker, and its text is whole.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from engines.core.engine import StageEngine
from engines.core.fast_path.batch_listeners import BatchListeners
from engines.core.replica import Replica
from engines.core.request import NO_WORK, DeviceWork
from engines.core.router import AssigningRouter, BindingRouter, Router, check_replica
from engines.core.stage import ENTRY
from engines.deployments import Deployment
from engines.turns.hook import Hook
from engines.turns.orchestrator import DecodeQueue, Orchestrator
from engines.turns.reply import Progress, Reply, ReplyRequest, SpeechView
from workloads.trace import Turn

WHOLE_FRAMES = 300
"""Codec frames that the vocoder decodes at once of a reply that it gets whole, each piece with left context (vllm-omni
0.20.0, qwen3_omni_code2wav.py 196-240)."""

Transfer = Callable[[Replica, Replica, float], float]
"""(source, target, bytes): queues a copy between the GPUs of two replicas and returns its arrival time (s)."""


class Egress(Protocol):
    """Receives the pipeline's output for the client, if given, and knows the speech and playback of sessions."""

    def said_so_far(self, turn: Turn, tokens: int) -> tuple[list[int], list[int]]:
        """Return the session's history, and the history with the first tokens of the user's unfinished `turn`."""
        ...

    def view(self, request: ReplyRequest, now: float) -> SpeechView:
        """Return the request as policies see it at `now`."""
        ...

    def text(self, reply: Reply, tokens: int) -> None: ...

    def audio(self, reply: Reply, frames: int) -> None: ...

    def reply_done(self, reply: Reply) -> None: ...


class Pipeline:
    """Takes replies through stage replicas, which `connect` gives it: the graph that components attach to.

    Stages go by their roles (`Deployment.role`). The text comes from the `ENTRY`, whatever its name, or with the
    request if there is no entry.
    """

    def __init__(self, deployment: Deployment, egress: Egress, transfer: Transfer) -> None:
        self.deployment = deployment
        self.egress = egress
        self.transfer = transfer
        self.engines: Mapping[str, Sequence[StageEngine]] = {}
        self.routers: Mapping[str, Router] = {}
        self.orchestrator = Orchestrator(deployment.overheads.orchestrator_s)
        self.segment_tokens = deployment.model.segment_tokens
        self.talkers_remember = (
            deployment.speaks and not deployment.speech_only and deployment.stages["talker"].prefix_caching
        )
        self.on_prefilled = {ENTRY: self._prefilled}
        self.ready = {} if self.segment_tokens or deployment.speech_only else {"talker": self.text_ready}
        self.on_token = {ENTRY: self._text, "talker": self._frames, "vocoder": _nothing}
        self.on_finish = {ENTRY: self._text_done, "talker": self._frames_done, "vocoder": self._decoded}
        self.hooks: list[Hook] = []
        self.truncated_prompts = 0
        self.batch_listeners = BatchListeners(self.hooks, self._pass_on_text, egress)
        self._entry = deployment.entry
        self.entry_role = deployment.role(deployment.entry)
        self._lag = deployment.model.frame_lag_steps
        self._async_chunk = deployment.async_chunk
        self._codec = deployment.codec
        self._fetch_s = deployment.overheads.fetch_s
        self._deliver_s = deployment.overheads.deliver_s
        self._first_text = deployment.overheads.first_text_tokens
        self._wakes: dict[StageEngine, float] = {}
        self.decode_queue: DecodeQueue | None = None
        self._visited: dict[int, set[StageEngine]] = {}
        self._last: dict[str, dict[int, int]] = {}
        self._homes: dict[str, Callable[[int], int | None]] = {}
        self._loop = asyncio.get_running_loop()

    def connect(self, engines: Mapping[str, Sequence[StageEngine]], routers: Mapping[str, Router]) -> None:
        """Connect the replicas of each role, and the routers of entry and talker.

        In a divided entry the prefill replicas come first; its router leads to them, and the one named `decode` to the
        others. If that router assigns all waiting requests together, they wait until a decode replica has a place.
        """
        self.engines, self.routers = engines, routers
        if isinstance(decode := routers.get("decode"), AssigningRouter):
            self.decode_queue = DecodeQueue(decode, self._decode)
        for stage, router in routers.items():
            last = self._last[stage] = {}
            self._homes[stage] = router.home if isinstance(router, BindingRouter) else last.get

    def attach(self, hook: Hook) -> None:
        """Attach a hook; it follows every reply, after the hooks attached before."""
        self.hooks.append(hook)

    def at(self, role: str) -> list[StageEngine]:
        """Return the engines of a role; in a divided entry also of `prefill` or `decode`."""
        if role in self.engines:
            return [*self.engines[role]]
        return [engine for engine in self.engines.get(ENTRY, ()) if engine.replica.stage.role == role]

    def entry(self, session: int) -> StageEngine | None:
        """Return the entry's replica that has the session's KV, or will have; None before its first request, if its
        router does not bind it to one, and if no stage makes text."""
        home = self._homes[ENTRY](session) if ENTRY in self._homes else None
        return None if home is None else self.engines[ENTRY][home]

    def talker(self, session: int) -> StageEngine | None:
        """Return the talker replica that has the session's KV, if talkers keep any."""
        if not self.talkers_remember:
            return None
        home = self._homes["talker"](session)
        return None if home is None else self.engines["talker"][home]

    def forget(self, session: int) -> None:
        engines = self._visited.pop(session, set())
        engines |= {engine for engine in (self.entry(session), self.talker(session)) if engine is not None}
        for engine in sorted(engines, key=lambda engine: (engine.stage, engine.index)):
            engine.forget(session)
        for stage, router in self.routers.items():
            router.forget(session)
            self._last[stage].pop(session, None)

    def start(self, reply: Reply, audio_s: float, encoded_at: int) -> None:
        """Send a complete turn to its session's replica of the entry. `audio_s`: sound to encode, which begins at
        `encoded_at` in its prompt."""
        turn, speech_only = reply.turn, self.deployment.speech_only
        hands_over, image_tokens = reply.progress.spoken and not speech_only, turn.visual_tokens or 0
        work = NO_WORK
        if audio_s or image_tokens or hands_over:
            work = DeviceWork(audio_s, image_tokens, encoded_at, hands_over=hands_over)
        request = reply.request(
            self._entry,
            reply.prompt,
            reply.frames_total + self._lag if speech_only else reply.text_total,
            work=work,
            features=reply.features,
            slo=turn.request.slo,
            predicted_tokens=turn.hints.predicted_tokens,
            due_s=reply.due_s,
            background=turn.request.backlog is not None,
        )
        if speech_only:
            reply.progress.text_tokens = reply.progress.text_arrived = reply.text_total
            reply.text_passed = True
        else:
            reply.text_ids = request.output
        if not any([hook.admitted(reply, request) for hook in self.hooks]):  # all are asked
            self.send(reply, request)

    def abort(self, reply: Reply) -> None:
        """Cancel a reply at every stage that still works on it; later results are dropped on arrival."""
        reply.cancelled = True
        if not reply.text_passed:
            self.batch_listeners.reply_cancelled()
        for hook in self.hooks:
            hook.closed(reply)
        if self.decode_queue is not None:
            self.decode_queue.discard(reply)
        for stage in list(reply.routed):
            self._leave(stage, reply)
        for engine, request in reply.live.values():
            engine.abort(request)
        reply.live.clear()

    def text_ready(self, request: ReplyRequest) -> bool:
        """Return True if the talker has the text token for its next frame; it needs none once the text has ended."""
        progress = request.reply.progress
        if progress.frames < request.reply.text_total and self._loop.time() < progress.fetched_s:
            return False
        return progress.text_arrived > progress.frames or progress.text_arrived >= request.reply.text_total

    def _pass_on_text(self, request: ReplyRequest, deliver: Callable[..., None], *content: object) -> None:
        """Pass on a message with text that leaves the replica of `request`."""
        self.orchestrator.pass_on(request.reply.live[self._entry][0], deliver, *content)

    def _text(self, request: ReplyRequest, tokens: int) -> None:
        reply = request.reply
        reply.progress.text_tokens += tokens
        for hook in self.hooks:
            hook.produced(reply)
        self._pass_on_text(request, self.egress.text, reply, tokens)
        if not reply.progress.spoken:
            return
        first = reply.talker is None
        if first:
            least = min(self._first_text, reply.text_total) if self._async_chunk else reply.text_total
            if reply.progress.text_tokens < least:
                return
            tokens = reply.progress.text_tokens
            # By replies, not requests: segments that are held back would count as load.
            reply.talker = self.engines["talker"][self._route("talker", reply, request)]
            if self.talkers_remember:
                self._visited.setdefault(reply.turn.session, set()).add(reply.talker)
        assert reply.talker is not None
        states = tokens + (len(reply.prompt) if first else 0)
        size = states * self.deployment.model.hidden_state_bytes_per_token
        copied_s = self.transfer(reply.live[self._entry][0].replica, reply.talker.replica, size)
        arrival_s = max(self._loop.time() + self.deployment.overheads.hop_s, copied_s)
        self._loop.call_at(arrival_s, self._text_arrives, reply, reply.talker, tokens)

    def _text_arrives(self, reply: Reply, talker: StageEngine, tokens: int) -> None:
        before = reply.progress.text_arrived
        reply.progress.text_arrived += tokens
        requests = self._segments(reply, before) if self.segment_tokens else self._unsegmented(reply, before)
        for request in requests:
            self._submit(talker, request)
        if not requests:
            talker.wake()

    def _unsegmented(self, reply: Reply, text_before: int) -> list[ReplyRequest]:
        if text_before:
            return []
        tokens = reply.frames_total + self._lag
        room = self.deployment.stages["talker"].max_model_len - tokens
        extra = self.deployment.model.talker_prompt_extra_tokens
        prompt = reply.talker_prompt if self.talkers_remember else [0] * (reply.user_tokens + extra)
        self.truncated_prompts += len(prompt) > room
        request = reply.request("talker", prompt[-room:], tokens)
        if self.talkers_remember:
            reply.talker_prompt, reply.frame_ids = request.prompt, request.output
        return [request]

    def _segments(self, reply: Reply, text_before: int) -> list[ReplyRequest]:
        """Return a request, with its frames, for each segment whose text is complete now."""
        size, extra = self.segment_tokens, self.deployment.model.talker_prompt_extra_tokens
        requests = []
        for begin in range(text_before // size * size, reply.progress.text_arrived, size):
            end = min(begin + size, reply.text_total)
            frames = reply.frames_up_to(end) - reply.frames_up_to(begin)
            if end <= reply.progress.text_arrived and frames:
                # In order also where a policy sees no difference but names.
                name = f"talker.{begin // size:04d}"
                prompt = [0] * (end - begin + extra)
                work = DeviceWork(rendered_frames=frames)
                requests.append(reply.request(name, prompt, 1, work=work, tokens_per_output=frames, text_end=end))
        return requests

    def _prefilled(self, request: ReplyRequest) -> None:
        """Continue after the first token: a message later, a decode replica takes over."""
        reply = request.reply
        source, _ = reply.live[self._entry]
        source.keep(request)
        self._leave(ENTRY, reply)
        self.orchestrator.pass_on(source, self._hand_over, source, request)

    def _hand_over(self, source: StageEngine, request: ReplyRequest) -> None:
        reply = request.reply
        if reply.cancelled:
            return
        if self.decode_queue is not None:
            self.decode_queue.add(reply, len(request.prompt), request.max_tokens)
        else:
            self._route("decode", reply, request)
            self._decode(reply)

    def _decode(self, reply: Reply) -> None:
        """Continue a reply at the decode replica to which it was routed."""
        source, request = reply.live[self._entry]
        target = self.engines[ENTRY][source.replica.stage.roles["decode"][reply.routed["decode"][0]]]
        for hook in self.hooks:
            hook.handed_over(reply)
        reply.live[self._entry] = (target, request)
        target.take_over(request, source)

    def _text_done(self, request: ReplyRequest) -> None:
        reply = request.reply
        engine, _ = reply.live.pop(self._entry)
        self._leave(ENTRY, reply)
        self._leave("decode", reply)
        for hook in self.hooks:
            hook.closed(reply)
        self.orchestrator.pass_on(engine, self._text_passed, reply)

    def _frames(self, request: ReplyRequest, frames: int) -> None:
        if len(request.output) <= self._lag:
            return
        progress = request.reply.progress
        progress.frames += frames
        if self.deployment.speech_only:
            for hook in self.hooks:
                hook.produced(request.reply)
        talker, _ = request.reply.live[request.name]
        if progress.segments:
            progress.text_voiced, progress.frames_sent = request.text_end, progress.frames
            self._spoken(talker, request.reply, frames)
            return
        self.orchestrator.poll(talker)
        if self._fetch_s and progress.frames < request.reply.text_total:
            self._fetch(talker, progress)
        if progress.frames == progress.chunk_end and self._async_chunk:
            self._send_chunk(request.reply)

    def _fetch(self, talker: StageEngine, progress: Progress) -> None:
        """Fetch the next token of text once a step has ended, so that the request sits out a step that begins at once
        (vllm-omni 0.22.0, chunk_transfer_adapter.py 548-575, `_process_chunk_queue_legacy`)."""
        progress.fetched_s = self._loop.time() + self._fetch_s
        if self._wakes.get(talker) != progress.fetched_s:
            self._wakes[talker] = progress.fetched_s
            self._loop.call_at(progress.fetched_s, talker.wake)

    def _frames_done(self, request: ReplyRequest) -> None:
        reply = request.reply
        del reply.live[request.name]
        if reply.progress.frames == reply.frames_total:
            reply.progress.voiced = True
            self._leave("talker", reply)
            if self.deployment.speech_only:
                for hook in self.hooks:
                    hook.closed(reply)
        if reply.progress.frames > reply.progress.frames_sent:
            self._send_chunk(reply)

    def _send_chunk(self, reply: Reply) -> None:
        progress, talker = reply.progress, reply.talker
        assert talker is not None
        frames = progress.frames - progress.frames_sent
        before = self._codec.codec_left_context_frames
        context = self._codec.context(progress.frames_sent, reply.recorded_frames)
        progress.frames_sent = progress.frames
        progress.chunk_end = progress.frames + self._codec.codec_chunk_frames
        name = f"vocoder.{progress.frames_sent}"
        decoded = frames + context + before * ((frames - 1) // WHOLE_FRAMES)
        work = DeviceWork(rendered_frames=decoded)
        request = reply.request(name, [0] * decoded, 1, new_frames=frames, work=work)
        arrival_s = self._loop.time() + self.deployment.overheads.hop_s
        self._loop.call_at(arrival_s, self._submit, self.engines["vocoder"][talker.index], request)

    def _decoded(self, request: ReplyRequest) -> None:
        vocoder, _ = request.reply.live.pop(request.name)
        self._spoken(vocoder, request.reply, request.new_frames)

    def _spoken(self, source: StageEngine, reply: Reply, frames: int) -> None:
        self.orchestrator.pass_on(source, self._audio_passed, reply, frames)

    def _text_passed(self, reply: Reply) -> None:
        reply.text_passed = True
        self._done_if_complete(reply)

    def _audio_passed(self, reply: Reply, frames: int) -> None:
        if self._deliver_s:
            self._loop.call_later(self._deliver_s, self._audio_delivered, reply, frames)
        else:
            self._audio_delivered(reply, frames)

    def _audio_delivered(self, reply: Reply, frames: int) -> None:
        reply.frames_passed += frames
        self.egress.audio(reply, frames)
        self._done_if_complete(reply)

    def _done_if_complete(self, reply: Reply) -> None:
        if reply.text_passed and reply.frames_passed == reply.frames_total:
            self.egress.reply_done(reply)

    def send(self, reply: Reply, request: ReplyRequest, among: Sequence[int] | None = None) -> None:
        """Send a request to one of the first stage's replicas, chosen by its router; `among`: to one of these."""
        entry = self.engines[self.entry_role][self._route(self.entry_role, reply, request, among)]
        if self.deployment.speech_only:
            reply.talker = entry
        self._visited.setdefault(reply.turn.session, set()).add(entry)
        self.orchestrator.pass_on("front", self._submit, entry, request)

    def _route(self, stage: str, reply: Reply, request: ReplyRequest, among: Sequence[int] | None = None) -> int:
        router = self.routers[stage]
        replica = router.route(reply.turn.session, request.prompt, request.features, among)
        check_replica(router, replica, len(self.at(stage)))
        self._last[stage][reply.turn.session] = replica
        reply.routed[stage] = replica, len(request.prompt)
        return replica

    def _leave(self, stage: str, reply: Reply) -> None:
        """Stop counting the reply at the replica to which it was routed, if it still counts."""
        routed = reply.routed.pop(stage, None)
        if routed is not None:
            self.routers[stage].done(*routed)
            if stage == "decode" and self.decode_queue is not None:
                self.decode_queue.look()

    def _submit(self, engine: StageEngine, request: ReplyRequest) -> None:
        if request.reply.cancelled:
            return
        request.reply.live[request.name] = (engine, request)
        engine.submit(request)


def _nothing(request: ReplyRequest, tokens: int) -> None:
    """Do nothing: the vocoder's single token is only the sign that its chunk is decoded."""
