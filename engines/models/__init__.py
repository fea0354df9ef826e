"""Facts about models as data: one YAML file per model, in which every number carries its source."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from engines.models import user_file
from workloads.errors import UserError, nearest
from workloads.files.yaml_file import shipped_yaml
from workloads.plugins import entry_points, load


@dataclass(frozen=True)
class AudioEncoder:
    """An audio encoder as real devices execute it: counts of layers, heads and channels, sizes in elements."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    channels: int


@dataclass(frozen=True)
class VisionEncoder:
    """A vision transformer and the adapter behind it: counts of layers and heads, sizes in elements and pixels.

    An image is cut into square patches of `patch` pixels; `merge` x `merge` of them become one token of the decoder.
    `gated`: its feed-forward has three products and not two. `window`: patches that most layers see at most, except
    `full_layers` of them; 0: all see the whole image. `extra`: positions besides the patches, such as the class token.
    `adapter_params`: parameters that every token passes behind the layers; `embed_params`: parameters in front of them
    and tables of positions.
    """

    layers: int
    hidden: int
    heads: int
    ffn: int
    patch: int = 14
    merge: int = 2
    adapter_params: int = 0
    embed_params: int = 0
    gated: bool = False
    window: int = 0
    full_layers: int = 0
    extra: int = 0
    dtype_bytes: int = 2

    @property
    def layer_params(self) -> int:
        return (4 * self.hidden + (3 if self.gated else 2) * self.ffn) * self.hidden

    @property
    def layer_bytes(self) -> int:
        return self.layer_params * self.dtype_bytes

    def weight_bytes(self, slots: int | None = None) -> int:
        """Return the bytes of all weights; with `slots`, of the weights on the GPU when layers come and go through that
        many slots."""
        held = self.layers if slots is None else min(slots, self.layers)
        return held * self.layer_bytes + (self.adapter_params + self.embed_params) * self.dtype_bytes

    def patches(self, tokens: int) -> int:
        """Return the positions of an image of `tokens` tokens."""
        return tokens * self.merge**2 + self.extra


@dataclass(frozen=True)
class LatentAttention:
    """Attention over one compressed vector per token in place of K and V of each head (MLA, DeepSeek-V2): ranks and
    sizes in elements. `kv_rank`, `rope`: of the vector, and of its part with positions, which all heads share; `nope`,
    `v_head`: of a head's K without positions, and of its V; `query_rank`: to which queries are compressed, 0: not."""

    kv_rank: int
    rope: int
    nope: int
    v_head: int
    query_rank: int

    def params(self, hidden: int, heads: int) -> int:
        """Return the parameters of one layer: queries down and up, the vector, K and V out of it, the output."""
        size = heads * (self.nope + self.rope)
        queries = self.query_rank * (hidden + size) if self.query_rank else hidden * size
        vector = hidden * (self.kv_rank + self.rope)
        return queries + vector + self.kv_rank * heads * (self.nope + self.v_head) + heads * self.v_head * hidden


@dataclass(frozen=True)
class Decoder:
    """One decoder stack: counts of layers and heads, sizes in elements, `dtype_bytes` in bytes, times in s.

    `weight_dtype_bytes`: of the layers' weights if they are quantised, 1 for FP8; embedding, output head, KV and
    activations keep `dtype_bytes`. 0: the weights have that too. `audio_encoder`: turns sound into its input embeddings
    on a real device; None if sound is only counted. `vision_encoder`: turns images into its input embeddings; None if
    images only count as tokens. `mla`: attention over compressed KV. `dense_layers`: the first layers, which have a
    feed-forward of `ffn` and no experts. `qk_norm`: queries and keys are normalised, head by head, before attention.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype_bytes: int = 2
    weight_dtype_bytes: int = 0
    vocab: int = 0
    ffn: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    encoder_s: float = 0.0
    encoder_s_per_audio_s: float = 0.0
    decoder_s_per_frame: float = 0.0
    host_s: float = 0.0
    host_s_per_request: float = 0.0
    host_s_per_state: float = 0.0
    code_predictor: "Decoder | None" = None
    steps: int = 1
    audio_encoder: AudioEncoder | None = None
    vision_encoder: VisionEncoder | None = None
    mla: LatentAttention | None = None
    dense_layers: int = 0
    qk_norm: bool = False

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V of one token over all layers."""
        if self.mla is not None:
            return self.layers * (self.mla.kv_rank + self.mla.rope) * self.dtype_bytes
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype_bytes

    @property
    def layer_dtype_bytes(self) -> int:
        return self.weight_dtype_bytes or self.dtype_bytes

    @property
    def attention_params(self) -> int:
        """Parameters of one layer's attention: query, key, value and output projections."""
        if self.mla is not None:
            return self.mla.params(self.hidden, self.heads)
        return self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    @property
    def expert_params(self) -> int:
        """Parameters of one routed expert of one layer (gate, up, down)."""
        return 3 * self.hidden * self.expert_ffn

    @property
    def shared_params(self) -> int:
        """Parameters of one layer with experts that every token uses: shared feed-forward, router."""
        return 3 * self.hidden * self.shared_ffn + self.hidden * self.experts

    @property
    def expert_layers(self) -> float:
        """Share of the layers that have experts, if there are any."""
        return 1 - self.dense_layers / self.layers

    @property
    def dense_params(self) -> float:
        """Parameters of one layer that every token uses: attention, dense or shared feed-forward, router; the mean if
        layers differ."""
        dense = 3 * self.hidden * self.ffn
        if not self.dense_layers:
            return self.attention_params + dense + self.shared_params
        return (
            self.attention_params
            + (self.dense_layers * dense + (self.layers - self.dense_layers) * self.shared_params) / self.layers
        )

    @property
    def pair_flops(self) -> int:
        """Operations of one layer for a query and a key of all heads, with K and V of each."""
        if self.mla is not None:
            return 2 * self.heads * (self.mla.nope + self.mla.rope + self.mla.v_head)
        return 4 * self.heads * self.head_dim

    @property
    def latent_pair_flops(self) -> int:
        """Operations of one layer for a query and a key over compressed KV, which serves as K and V of every head; 0
        without compressed KV."""
        return 2 * self.heads * (2 * self.mla.kv_rank + self.mla.rope) if self.mla is not None else 0

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights, including the embedding, the output head and the vision encoder."""
        return self.resident_bytes()

    def resident_bytes(self, vision_slots: int | None = None, expert_dies: int = 1) -> int:
        """Return the bytes of weights on the GPU: with `vision_slots` slots for the vision encoder's layers, on one of
        `expert_dies` dies that divide the routed experts."""
        routed = round((self.layers - self.dense_layers) * self.experts * self.expert_params / expert_dies)
        decoder_bytes = (
            round(self.layers * self.dense_params) + routed
        ) * self.layer_dtype_bytes + 2 * self.vocab * self.hidden * self.dtype_bytes
        decoder_bytes += self.vision_encoder.weight_bytes(vision_slots) if self.vision_encoder else 0
        return decoder_bytes + (self.code_predictor.weight_bytes if self.code_predictor else 0)


@dataclass(frozen=True)
class Model:
    """A pipeline's facts.

    `frame_s`: seconds of audio per codec frame; None if the model does not speak. `segment_tokens`: text tokens that
    the talker speaks as one piece, which nothing interrupts; 0 if it goes frame by frame. `chunk_extra_tokens`: tokens
    around each chunk of audio that streams in, besides those of its sound. `frame_lag_steps`: steps of the talker by
    which each frame comes later than its first code. `max_model_len`: tokens of one request at most, prompt and output;
    0 if it is not stated.
    """

    name: str
    stages: dict[str, Decoder]
    frame_s: float | None
    input_tokens_per_s: float
    speech_s_per_text_token: float
    talker_prompt_extra_tokens: int
    talker_turn_extra_tokens: int
    hidden_state_bytes_per_token: int
    segment_tokens: int = 0
    chunk_extra_tokens: int = 0
    frame_lag_steps: int = 0
    max_model_len: int = 0

    def whole_tokens(self, seconds: float) -> int:
        return int(seconds * self.input_tokens_per_s + 1e-9)


def values(node: Any) -> Any:
    """Strip `{value, source}` pairs down to their values; a number without a source is an error."""
    if isinstance(node, dict):
        if "value" in node:
            if not node.get("source"):
                raise ValueError(f"the fact {node} has no source")
            return node["value"]
        return {key: values(child) for key, child in node.items()}
    if isinstance(node, (int, float)):
        raise ValueError(f"the number {node} has no source")
    return node


def _decoder(facts: dict[str, Any]) -> Decoder:
    predictor, audio_encoder = facts.pop("code_predictor", None), facts.pop("audio_encoder", None)
    vision_encoder, mla = facts.pop("vision_encoder", None), facts.pop("mla", None)
    return Decoder(
        **facts,
        code_predictor=_decoder(predictor) if predictor else None,
        audio_encoder=AudioEncoder(**audio_encoder) if audio_encoder else None,
        vision_encoder=VisionEncoder(**vision_encoder) if vision_encoder else None,
        mla=LatentAttention(**mla) if mla else None,
    )


PACKAGES = {"models": "engines.models", "deployments": "engines.deployments"}


@cache
def yaml_files(what: str) -> dict[str, Any]:
    """Return files of facts by name, of models, deployments or GPUs: ours, and those of packages with an entry point of
    the group `rehearsal.models`, `rehearsal.deployments` or `rehearsal.gpus`. Our GPUs are in one file elsewhere."""
    ours = [PACKAGES[what]] if what in PACKAGES else []
    packages = [*ours, *(load(entry) for entry in entry_points(group=f"rehearsal.{what}"))]
    return {
        path.name.removesuffix(".yaml"): path
        for package in packages
        for path in files(package).iterdir()
        if path.name.endswith(".yaml")
    }


def load_model(name: str, facts: dict[str, Any] | None = None) -> Model:
    """Read a model's file: a known one by its name, or the user's by its path. `facts`: the file's content, if it was
    read before. UserError when there is no such model, or the user's file is none."""
    if not user_file.is_file(name):
        return _known(name)
    return user_file.checked(name, user_file.content(name) if facts is None else facts, _model)


@cache
def _known(name: str) -> Model:
    shipped = yaml_files("models")
    if name not in shipped:
        raise UserError(f"unknown model '{name}'.{nearest(name, shipped)}")
    return _model(name, shipped_yaml(shipped[name]))


def _model(name: str, written: dict[str, Any]) -> Model:
    """Return the model of a file's content; the names under which it is published (`published`) are read elsewhere."""
    facts = values({key: value for key, value in written.items() if key != "published"})
    audio = facts.get("audio") or {}
    return Model(
        name=name,
        stages={stage: _decoder(decoder) for stage, decoder in facts["stages"].items()},
        frame_s=audio.get("frame_s"),
        input_tokens_per_s=audio.get("input_tokens_per_s", 0.0),
        speech_s_per_text_token=audio.get("speech_s_per_text_token", 0.0),
        talker_prompt_extra_tokens=facts.get("talker_prompt_extra_tokens", 0),
        talker_turn_extra_tokens=facts.get("talker_turn_extra_tokens", 0),
        hidden_state_bytes_per_token=facts.get("hidden_state_bytes_per_token", 0),
        segment_tokens=audio.get("segment_tokens", 0),
        chunk_extra_tokens=audio.get("chunk_extra_tokens", 0),
        frame_lag_steps=audio.get("frame_lag_steps", 0),
        max_model_len=facts.get("max_model_len", 0),
    )


def model_of(published_name: str) -> Model | None:
    """Return the facts of a model that is published under this name (case does not matter); None if there are none."""
    name = _names().get(published_name.lower())
    return load_model(name) if name is not None else None


@cache
def _names() -> dict[str, str]:
    return {
        published.lower(): name
        for name, path in yaml_files("models").items()
        for published in shipped_yaml(path).get("published", [])
    }
