"""Real expert counts: Mixtral-8x7B, 32 layers of 8 experts, in seven domains of questions."""

import json
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "mixtral_counts"


def read_mixtral_counts():
    """Read assignments int64 ``[domains, layers, experts]``, domains by name."""
    files = sorted(FOLDER.glob("*.json"))
    if not files:
        pytest.skip(f"no counts in {FOLDER}: they are kept beside the repository")
    return np.array([json.loads(path.read_text())["expert_popularity"] for path in files])
