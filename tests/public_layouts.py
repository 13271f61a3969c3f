"""Small random checkpoints in the public layouts of LLaDA and Dream, with their literal forward passes."""

import json
from pathlib import Path

import safetensors.torch
import tokenizers as rust
import torch
from literal_llama import DREAM, LLADA, Literal
from transformers import PreTrainedTokenizerFast

ROWS, WIDTH, INNER, HEADS, LAYERS, LENGTH = 40, 32, 48, 4, 2, 24
MASK = {"llada": 37, "Dream": 36}
# The settings of the released config.json files, with small numbers.
CONFIGS = {
    "llada": {
        "activation_type": "silu",
        "alibi": False,
        "architectures": ["LLaDAModelLM"],
        "attention_dropout": 0.0,
        "attention_layer_norm": False,
        "auto_map": {"AutoModel": "modeling_llada.LLaDAModelLM"},
        "bias_for_layer_norm": False,
        "block_group_size": 1,
        "block_type": "llama",
        "d_model": WIDTH,
        "embedding_dropout": 0.0,
        "embedding_size": ROWS,
        "include_bias": False,
        "include_qkv_bias": False,
        "input_emb_norm": False,
        "layer_norm_type": "rms",
        "layer_norm_with_affine": True,
        "mask_token_id": MASK["llada"],
        "max_sequence_length": LENGTH,
        "mlp_hidden_size": INNER,
        "mlp_ratio": 4,
        "model_type": "llada",
        "multi_query_attention": None,
        "n_heads": HEADS,
        "n_kv_heads": HEADS,
        "n_layers": LAYERS,
        "residual_dropout": 0.0,
        "rms_norm_eps": 1e-5,
        "rope": True,
        "rope_theta": 500000.0,
        "scale_logits": False,
        "torch_dtype": "float32",
        "use_cache": False,
        "vocab_size": ROWS,
        "weight_tying": False,
    },
    "Dream": {
        "architectures": ["DreamModel"],
        "attention_dropout": 0.0,
        "auto_map": {"AutoModel": "modeling_dream.DreamModel"},
        "hidden_act": "silu",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "mask_token_id": MASK["Dream"],
        "max_position_embeddings": LENGTH,
        "model_type": "Dream",
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "use_mrope": False,
        "use_sliding_window": False,
        "vocab_size": ROWS,
    },
}


def public_weights(kind: str, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random tensors under the public names. Embeddings are small, so that the epsilon of the norms matters."""
    names = LLADA if kind == "llada" else DREAM
    groups = HEADS if kind == "llada" else 2
    shapes = {"norm1": (WIDTH,), "norm2": (WIDTH,), "norm": (WIDTH,), "table": (ROWS, WIDTH), "head": (ROWS, WIDTH)}
    shapes |= {"q": (WIDTH, WIDTH), "out": (WIDTH, WIDTH), "gate": (INNER, WIDTH), "up": (INNER, WIDTH)}
    shapes |= {"k": (groups * 8, WIDTH), "v": (groups * 8, WIDTH), "down": (WIDTH, INNER)}
    draw = torch.Generator().manual_seed(seed)
    weights = {}
    for part, shape in shapes.items():
        for layer in range(LAYERS if "{}" in names[part] else 1):
            scale = 0.02 if part == "table" else 0.3
            weights[f"{names[part].format(layer)}.weight"] = scale * torch.randn(shape, generator=draw)
            if kind == "Dream" and part in "qkv":
                weights[f"{names[part].format(layer)}.bias"] = 0.3 * torch.randn(shape[0], generator=draw)
    return weights


def write_public(kind: str, folder: Path, weights: dict[str, torch.Tensor] | None = None, **changes) -> Path:
    """Write a checkpoint in two shards, as the released ones are sharded; `changes` replace single settings."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = public_weights(kind) if weights is None else weights
    keys = sorted(weights)
    shards = {"model-00001-of-00002.safetensors": keys[::2], "model-00002-of-00002.safetensors": keys[1::2]}
    for name, part in shards.items():
        safetensors.torch.save_file({key: weights[key] for key in part}, folder / name)
    weight_map = {key: name for name, part in shards.items() for key in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(CONFIGS[kind] | changes))
    return folder


def literal(kind: str, wrong: str = "", weights: dict[str, torch.Tensor] | None = None) -> Literal:
    """The literal forward pass of `public_weights`."""
    config = CONFIGS[kind]
    numbers = {"heads": HEADS, "layers": LAYERS, "eps": config["rms_norm_eps"], "base": config["rope_theta"]}
    numbers |= {"kv_heads": HEADS if kind == "llada" else 2, "shift": kind == "Dream"}
    return Literal(weights or public_weights(kind), LLADA if kind == "llada" else DREAM, numbers, wrong)


def some_ids(kind: str, length: int = 9) -> torch.Tensor:
    """Ids (2, L) with masks."""
    ids = torch.randint(0, 36, (2, length), generator=torch.Generator().manual_seed(3))
    ids[:, 2:5] = MASK[kind]
    return ids


def byte_level(size: int) -> rust.Tokenizer:
    """A vocabulary of single characters."""
    vocabulary = {character: number for number, character in enumerate(sorted("abcdefghijklmnopqrstuvwxyzĠ,.!?-"))}
    inner = rust.Tokenizer(rust.models.BPE({key: number for key, number in vocabulary.items() if number < size}, []))
    inner.pre_tokenizer = rust.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = rust.decoders.ByteLevel()
    return inner


def write_llada_tokenizer(folder: Path, *special: str) -> None:
    """Write a plain tokenizer.json that does not say which of its tokens is the mask."""
    special = special or ("<|endoftext|>", "<a>", "<b>", "<c>", "<d>", "<|mdm_mask|>")
    inner = byte_level(32)
    inner.add_special_tokens(list(special))
    PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=special[0]).save_pretrained(folder)


def write_dream_tokenizer(folder: Path) -> None:
    """Write the files of a slow Qwen2 tokenizer whose class is code in the repository."""
    model = json.loads(byte_level(32).to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|beginoftext|>", "<|mask|>"]
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    settings = {
        "added_tokens_decoder": {str(32 + i): {"content": name, **flags} for i, name in enumerate(names)},
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "tokenizer_class": "DreamTokenizer",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "mask_token": "<|mask|>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
