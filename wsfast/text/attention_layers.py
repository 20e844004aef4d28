"""`attention_layers`: what the attention of any transformers model computes on a text.

A copy of the model calls the function of :mod:`wsfast.text.attention_function`. Whatever the
architecture, that is given queries, keys and values; :mod:`wsfast.text.sublayers` finds the modules
around them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wsfast import _values
from wsfast._extras import import_extra
from wsfast._precision import at_full_precision
from wsfast.maps.attention_layer import AttentionLayer, Heads
from wsfast.text import attention_function, models, sublayers, tokens
from wsfast.text.attention_function import Exact, listening
from wsfast.text.embed import checked_max_tokens, text_of
from wsfast.text.layers import encoder_of, run, twin
from wsfast.text.sublayers import Heard, Recorder, Sublayer

_EXACT = 1e-9  # relative, in float64: rounding stays below, what is left out above
_LOOSE = 4.0  # times the root of the precision in which the model computes as it is


@at_full_precision
def attention_layers(
    model: models.Model,
    text: str,
    *,
    layers: Iterable[int] | None = None,
    max_tokens: int | None = None,
) -> list[AttentionLayer]:
    """Queries, keys, values and output map of the self-attention of a trained model on one text.

    Parameters
    ----------
    model : str, (model, tokenizer) or SentenceTransformer
        As :func:`embed` takes it; decoders too, and of an encoder-decoder the encoder. What runs is
        a copy with weights in float64, on its device, dropout off; the model is left as it was. The
        copy is checked against the model on this text.
    text : str
        Special tokens are rows too, as the model sees them.
    layers : iterable of int, optional
        Numbers of the layers that are wanted, from 0; by default all.
    max_tokens : int, optional
        Keep only the first `max_tokens` tokens of the text, special tokens not counted.

    Returns
    -------
    list of AttentionLayer
        In the order of their numbers; all tensors float64. Causal masks, sliding windows, soft
        caps, sinks, position biases and shared keys are those of the model.

    Raises
    ------
    ImportError
        If the extra ``text``, or ``mpnet`` for that model, is not installed.
    TypeError, ValueError
        For a text that is none or has too many tokens; a layer that the model does not have; a
        model whose attention is not softmax(q·k + bias) v followed by one linear map: linear and
        sparse attention, state spaces, gates; one on the device "meta" or quantised; one whose copy
        gives other hidden states.
    OSError
        If there is no model of that name.

    Notes
    -----
    docs/design.md, section 7 "Trained layers".

    Examples
    --------
    >>> layer = attention_layers("minilm", "I love her much")[0]  # doctest: +SKIP
    >>> layer.heads.attention().shape  # doctest: +SKIP
    torch.Size([12, 6, 6])
    """
    text = text_of("text", text)
    models.check(model)
    encoder, tokenizer = models.load(model)
    encoding = encode(encoder, tokenizer, text, max_tokens)
    return [*AttentionModel(encoder).layers(encoding.inputs, layers)]


def encode(
    encoder: Any, tokenizer: Any, text: str, max_tokens: int | None = None
) -> tokens.Encoding:
    """Tokens of a text, special ones included, for :meth:`AttentionModel.layers`.

    Raises
    ------
    TypeError, ValueError
        For a tokenizer that gives no offsets, a text without tokens or with too many.
    """
    models.check_tokenizer(tokenizer)
    encoding = tokens.encode(tokenizer, text).first(checked_max_tokens(max_tokens))
    tokens.check_some("text", text, encoding)
    limit = models.position_limit(encoder, tokenizer)
    tokens.check_length("text", len(encoding.tokens), limit)
    return encoding


class AttentionModel:
    """A transformers model, made ready once to give the attention layers of many texts.

    The weights are those of now: a model that is trained further needs another. Hooks of its owner
    play their part.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A decoder, an encoder, or an encoder-decoder, of which the encoder counts.

    Raises
    ------
    ValueError
        If its code has another attention, or its weights are on "meta" or quantised.
    """

    @at_full_precision
    def __init__(self, model: Any) -> None:
        encoder = encoder_of(model)
        encoder = getattr(encoder, "base_model", encoder)  # without what is made of its states
        _check(encoder)
        self._given = twin(encoder)
        self._eager = twin(encoder, own_config=True, dtype=torch.float64)
        _settle(self._eager)
        self._copy = twin(self._eager, own_config=True)
        attention_function.set_implementation(self._eager, "eager")
        attention_function.switch(self._copy)
        sublayers.watch(self._copy)
        self._names = {part: name for name, part in self._copy.named_modules()}
        self._lists = sublayers.lists_of(self._copy)
        self._checking = threading.Lock()
        self._checked = 0  # tokens of the longest text that was checked
        self._depth = 0
        self._known: dict[Any, _Known] = {}  # of an attention module, whatever the text

    @at_full_precision
    def layers(
        self, inputs: dict[str, list[int]], layers: Iterable[int] | None = None
    ) -> list[ModelLayer]:
        """Attention layers of one text.

        The first text is checked, see `self_check`, and so is one much longer than those before:
        windows show there.

        Parameters
        ----------
        inputs : dict of str to list of int
            What a tokenizer returns for the text: ``input_ids`` and masks.
        layers : iterable of int, optional
            Numbers of the layers that are wanted; by default all.
        """
        with self._checking:
            if len(inputs["input_ids"]) > 2 * self._checked:
                self.self_check(inputs)
        wanted = self._numbers(layers)
        if not wanted:
            return []
        recorder = Recorder(self._lists, wanted)
        with suppress(sublayers.DoneError):
            self._run(inputs, recorder)
        recorder.close()
        return [self._layer(heard) for heard in recorder.found]

    @at_full_precision
    def self_check(self, inputs: dict[str, list[int]]) -> None:
        """Compare hidden states of the copy with those of the model, on one text.

        Twice: in float64 with the model's own attention, where only rounding may differ, and with
        the model as it is, in its own precision.

        Raises
        ------
        ValueError
            If they differ, or if layers have no attention that was heard of.
        """
        recorder = Recorder(self._lists, frozenset())
        state = self._run(inputs, recorder)
        self._check_heard(recorder)
        count = len(inputs["input_ids"])
        if len(state) != count:
            raise ValueError(
                f"model must keep a row for each token, got {self._kind}, whose hidden state has "
                f"{len(state)} rows for {count} tokens"
            )
        with Exact():
            own = _state(self._eager, inputs)
        given = _state(self._given, inputs)
        # Models in float64 compute parts in float32.
        precision = max(torch.finfo(dtype).eps for dtype in (given.dtype, torch.float32))
        for other, how, most in (
            (own, "in float64 with its own attention", _EXACT),
            (given, f"as it is, in {given.dtype}", _LOOSE * precision**0.5),
        ):
            error = float((state - other).norm() / other.double().norm())
            if not error <= most:
                raise ValueError(
                    f"model must be one whose attention can be read, got {self._kind}: its copy "
                    f"gives other hidden states than the model {how}, by {error:.1e} of their "
                    f"norm, where at most {most:.0e} is rounding"
                )
        self._depth = recorder.count
        self._checked = max(self._checked, count)

    @property
    def _kind(self) -> str:
        return type(self._given).__name__

    def _run(self, inputs: dict[str, list[int]], recorder: Recorder) -> Tensor:
        with Exact(), listening(recorder):
            return _state(self._copy, inputs)

    def _check_heard(self, recorder: Recorder) -> None:
        """Refuse a model of which a layer has no attention that was heard of."""
        if not recorder.count:
            raise ValueError(f"model must have softmax attention, got {self._kind}, which has none")
        lists = {self._lists[block] for block in recorder.blocks}
        for part, owner in self._lists.items():
            if owner in lists and part not in recorder.blocks:
                kinds = ", ".join(type(child).__name__ for child in part.children())
                raise ValueError(
                    f"model must have softmax attention in each layer, got {self._kind}, whose "
                    f"{self._names[part]} ({type(part).__name__}: {kinds}) has none"
                )

    def _numbers(self, layers: Iterable[int] | None) -> frozenset[int]:
        if layers is None:
            return frozenset(range(self._depth))
        if not isinstance(layers, Iterable):
            raise TypeError(f"layers must be an iterable of integers, got {layers!r}")
        high = self._depth - 1
        return frozenset(_values.integer("layers", one, low=0, high=high) for one in layers)

    def _layer(self, heard: Heard) -> ModelLayer:
        attention = heard.attention.module
        if (known := self._known.get(attention)) is None:
            sublayer = sublayers.sublayer_of(heard)
            W_O = sublayers.output_map(sublayer, heard.context.shape[-1])
            known = _Known(
                sublayer.projection, W_O, linear=sublayers.is_linear(sublayer, heard.heads)
            )
            if heard.context.shape[1] > 1:  # one token tells nothing of positions
                self._known[attention] = known
        sublayer = Sublayer(heard.attention, heard.block, known.projection)
        return ModelLayer(
            number=heard.number,
            name=self._names[attention],
            X=heard.attention.input[0],
            residual=heard.block.input[0],
            heads=_of_one(heard.heads),
            W_O=known.W_O,
            rows=sublayer.rows,
            rows_of_residual=sublayer.rows_of_residual,
            linear=known.linear,
            sublayer=sublayer,
        )


class _Known(NamedTuple):
    """What texts do not change of a sublayer."""

    projection: Any
    W_O: Tensor
    linear: bool


@dataclass(frozen=True, eq=False)
class ModelLayer(AttentionLayer):
    """An attention layer with the modules of the model behind it."""

    sublayer: Sublayer

    @at_full_precision
    def shuffled(self, generator: torch.Generator) -> ModelLayer:
        """The same layer on the same text, the entries of each of its weight matrices permuted.

        A control that keeps the sizes of the weights. The matrices are those of queries, keys,
        values and output; biases, norms and sinks are kept.
        """
        sublayer = self.sublayer.shuffled(generator)
        with torch.no_grad():
            q, k, v = (rows[0] for rows in sublayer.rows(self.X[None]))
            W_O = sublayers.output_map(sublayer, len(self.W_O))
        return replace(
            self,
            heads=replace(self.heads, queries=q, keys=k, values=v),
            W_O=W_O,
            rows=sublayer.rows,
            rows_of_residual=sublayer.rows_of_residual,
            sublayer=sublayer,
        )


def _of_one(heads: Heads) -> Heads:
    """The heads of the only text; without a bias that changes nothing."""
    bias = heads.bias if heads.bias is not None and heads.bias.any() else None
    return replace(
        heads,
        queries=heads.queries[0],
        keys=heads.keys[0],
        values=heads.values[0],
        bias=None if bias is None else bias[0],
    )


# -- the model -------------------------------------------------------------------------------------


def _check(model: Any) -> None:
    """Refuse what is no transformers model of tokens with numbers for weights."""
    kind = type(model).__name__
    if not isinstance(model, import_extra("transformers", "text").PreTrainedModel):
        raise ValueError(f"model must be a PreTrainedModel of transformers, got {kind}")
    try:
        rows = model.get_input_embeddings().weight.dim()
    except (AttributeError, NotImplementedError):
        rows = 0
    if rows != 2:
        raise ValueError(f"model must read tokens, got {kind}, which has no table of them")
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        raise ValueError(f'model must have its weights in memory, got {kind} on the device "meta"')
    numbers = all(weight.is_floating_point() for weight in model.parameters())
    if not numbers or _packed(model):
        raise ValueError(f"model must have weights of floating point, got a quantised {kind}")
    attention_function.check(model)


def _packed(model: Any) -> bool:
    """Whether weights are kept in fewer bits, which layers of another kind multiply with."""
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is None or getattr(quantizer.quantization_config, "dequantize", False):
        return False
    if getattr(quantizer.quantization_config, "quant_method", None) != "gguf":
        return True
    # The loader of GGUF files leaves blocks of bytes, or unpacks them all and does not say so.
    tensors = (*model.parameters(), *model.buffers())
    return any(one.dtype == torch.uint8 for one in tensors)


def _settle(model: Any) -> None:
    """Let a copy with its own configuration return hidden states, and keep nothing."""
    if model._can_set_experts_implementation():
        model.set_experts_implementation("eager")  # grouped products know no float64
    for part in model.modules():
        if (config := getattr(part, "config", None)) is not None:
            config.use_cache = False  # else a block that is called again appends its keys
            config.output_attentions = config.output_hidden_states = False


def _state(model: Any, inputs: dict[str, list[int]]) -> Tensor:
    """The last hidden state (n, d) of one text."""
    state: Tensor = run(model, inputs, collect=False)[0]
    return state[0]
