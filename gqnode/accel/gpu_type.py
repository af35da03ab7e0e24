"""Derives the common name of a GPU from NVML's product name, without maker, form and memory.  Pure."""

from __future__ import annotations

import re

_MAKERS = frozenset({"nvidia", "geforce", "tesla", "quadro", "grid"})
_END = re.compile(
    r"\d+gb|sxm\d*|pcie|hbm\w*|nvl\d*|mig|\d+[abcq]|generation|laptop|mobile|gpu|server|workstation|edition|blackwell"
    r"|max|with|d\d*x?"
)
"""The first of these words, and what follows, is not the model."""


def gpu_type(product: str) -> str:
    """``NVIDIA A100-SXM4-80GB`` → ``a100``, ``NVIDIA GeForce RTX 4090`` → ``rtx4090``."""
    words = [word for word in re.split(r"[\s/_-]+", product.lower()) if word and word not in _MAKERS]
    model: list[str] = []
    for word in words:
        if model and _END.fullmatch(word):
            break
        model.append(word)
    if len(model) > 1 and model[0] == "rtx" and re.fullmatch(r"a\d+", model[1]):
        model = model[1:]
    return re.sub(r"[^a-z0-9]", "", "".join(model)) or "gpu"
