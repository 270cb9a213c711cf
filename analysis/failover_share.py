"""How many tokens and requests need an expert that is lost. The mean share of the traffic is far below it.

**The model.** A token draws ``top_k`` experts in each layer. Lost experts that together have the share s of a
layer's assignments are avoided by it with the chance (1 − s)^top_k if the draws are independent, and by at
most Π (1 − pₑ) over the lost experts if expert e is chosen by the share pₑ of the tokens and none twice. Both
are a little above what drawing without putting back gives; the smaller one is taken. Layers are taken as
independent: a token is spared with the product over the layers. Where tokens choose alike from layer to
layer, or the tokens of one request do, fewer are hit than that, so rigorous bounds stand beside it:

* a layer hits at least max(pₑ), and at least k·s / min(k, lost experts): a token has no more lost choices;
* it hits at most Σ pₑ; all layers together hit at least what the worst layer does and at most their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from moescope.schemas.records import FloatArray

BoolArray = npt.NDArray[np.bool_]
TokenArray = npt.NDArray[np.integer[Any]] | FloatArray
"""Assignments by layer and expert, counted or expected."""


@dataclass(frozen=True, slots=True)
class HitShare:
    """Share of tokens that need a lost expert in at least one layer; each from 0 to 1.

    Attributes:
        low: at least so many, whatever goes with what.
        expected: so many if draws and layers are independent.
        high: at most so many, whatever goes with what.
    """

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True)
class RequestShare:
    """Share of requests of which at least one token needs a lost expert; the truth lies between.

    Attributes:
        alike: if all tokens of a request choose alike: then a request is one token.
        independent: if its tokens choose independently; tokens of a request do not quite, so fewer are hit.
    """

    alike: float
    independent: float


def share_of_tokens_hit(tokens: TokenArray, is_lost: BoolArray, top_k: int) -> HitShare:
    """Share of the tokens that need a lost expert in any layer.

    Args:
        tokens: ``[layers, experts]``, assignments.
        is_lost: bool ``[layers, experts]``.
        top_k: experts per token.
    """
    low, expected, high = _hit_by_layer(tokens, is_lost, top_k)
    return HitShare(
        float(low.max(initial=0.0)),
        float(_any_of(expected)),
        float(min(1.0, high.sum())),
    )


def share_of_requests_hit(token_share: HitShare, tokens_per_request: float) -> RequestShare:
    """Share of the requests with so many tokens, prompt and output together, of which any token is hit."""
    times = max(tokens_per_request, 1.0)
    return RequestShare(token_share.expected, float(_any_of(np.array([token_share.expected]), times)))


def tokens_of_layers(tokens: TokenArray, top_k: int) -> FloatArray:
    """Tokens that chose in each layer: float64 ``[layers]``.

    Assignments / top_k, and no fewer than the busiest expert has: no token chooses an expert twice.
    """
    number: FloatArray = np.maximum(tokens.sum(axis=1) / top_k, tokens.max(axis=1, initial=0))
    return number


def _hit_by_layer(
    tokens: TokenArray, is_lost: BoolArray, top_k: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Lower bound, expectation and upper bound of the share of tokens hit in each layer ``[layers]``."""
    of_layer = tokens_of_layers(tokens, top_k)[:, None]
    chances = np.zeros(tokens.shape)
    np.divide(tokens, of_layer, out=chances, where=is_lost & (of_layer > 0))
    choices = chances.sum(axis=1)  # lost choices of a token, on average
    most = np.maximum(np.minimum(top_k, is_lost.sum(axis=1)), 1)
    low = np.maximum(chances.max(axis=1, initial=0.0), choices / most)
    high = np.minimum(choices, 1.0)
    by_draws = _any_of(np.minimum(choices / top_k, 1.0)[:, None], top_k)
    by_experts = _any_of(chances)
    expected = np.clip(np.maximum(by_draws, by_experts), np.minimum(low, high), high)
    return np.minimum(low, high), expected, high


def _any_of(chances: FloatArray, times: float = 1.0) -> FloatArray:
    """Chance that any of the independent events on the last axis happens, each tried so many times."""
    with np.errstate(divide="ignore"):  # what is certain
        spared = times * np.log1p(-chances).sum(axis=-1)
    happens: FloatArray = 0.0 - np.expm1(spared)
    return happens
