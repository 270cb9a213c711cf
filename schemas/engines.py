"""Which versions of an engine its hook was written and tested for."""

from __future__ import annotations

from typing import Final

VLLM_SUPPORTED_VERSION: Final = "0.32"
"""Major and minor version; with another one the hook warns once and counts nothing."""

SGLANG_SUPPORTED_VERSION: Final = "0.5.23"
"""Version without post-releases; with another one the hook warns once and counts nothing."""
