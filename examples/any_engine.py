"""Watch an engine that moescope has no hook for: three calls.

Run a server first (``moescope serve``), then this file, then ``moescope report hotspots``.
"""

import numpy as np

import moescope
from moescope import ModelShape, Row

SHAPE = ModelShape("my-model", num_layers=4, moe_layers=(1, 2, 3), num_experts=64, top_k=8)

recorder = moescope.instrument(shape=SHAPE, service="my-deployment")
rng = np.random.default_rng()

for _ in range(200):
    # What the token rows of the next forward pass are, in batch order.
    recorder.begin_step((Row.PREFILL, 13), (Row.DECODE, 23))
    for layer in SHAPE.moe_layers:
        # What your router selected: [tokens, top_k] logical expert ids.
        topk_ids = np.argsort(rng.random((36, SHAPE.num_experts)), axis=1)[:, : SHAPE.top_k]
        recorder.record_topk(layer, topk_ids)

print("acknowledged" if recorder.close() else "nobody took it; is moescope serve running?")
