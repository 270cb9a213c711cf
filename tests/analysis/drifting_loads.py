"""Expert load that changes from window to window in known ways."""

import numpy as np

KINDS = ("slow drift", "fast drift", "topic mix", "regime switch")


def expected_shares(kind, *, windows, layers, experts, seed):
    """Make the true shares ``[windows, layers, experts]``; a regime switch comes before the last two windows.

    Slow and fast drift: half the variance of the log shares stays, the other half is AR(1) with coefficients
    of 0.9 and 0.5. Topic mix: eight topics, whose weights drift.
    """
    rng = np.random.default_rng(seed)
    shape = (layers, experts)
    if kind == "topic mix":
        topics = np.exp(rng.normal(size=(8, *shape)))
        topics /= topics.sum(axis=2, keepdims=True)
        level = _autoregressive(rng, 0.8, windows, (8,))
        weights = np.exp(level) / np.exp(level).sum(axis=1, keepdims=True)
        return np.einsum("tk,kle->tle", weights, topics)
    base = rng.normal(size=shape) * 0.4
    if kind == "stationary":
        logs = np.broadcast_to(base, (windows, *shape))
    elif kind == "regime switch":
        other = rng.normal(size=shape) * 0.4
        logs = np.stack([base] * (windows - 2) + [0.5 * base + 0.85 * other] * 2)
    else:
        logs = base + 0.4 * _autoregressive(rng, 0.9 if kind == "slow drift" else 0.5, windows, shape)
    shares = np.exp(logs)
    return shares / shares.sum(axis=2, keepdims=True)


def count_tokens(shares, assignments, *, seed, clustering=1):
    """Draw counts; tokens come in groups of ``clustering`` that choose alike."""
    rng = np.random.default_rng(seed)
    draws = [rng.multinomial(assignments // clustering, layer) for window in shares for layer in window]
    return np.array(draws).reshape(shares.shape) * clustering


def _autoregressive(rng, coefficient, windows, shape):
    steps = [rng.normal(size=shape)]
    for _ in range(windows - 1):
        steps.append(coefficient * steps[-1] + np.sqrt(1 - coefficient**2) * rng.normal(size=shape))
    return np.array(steps)
