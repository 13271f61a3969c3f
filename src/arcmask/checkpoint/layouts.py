"""The public files of LLaDA and Dream, read into and written from transformers' own Llama and Qwen2.

Both models are what these classes compute, with full instead of causal attention. No code of their repositories runs.
Every key and shape is checked by its public name. Weights are taken over as they were read, without a second copy.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import init_empty_weights
from torch import Tensor

from arcmask.checkpoint.fitting import misfits
from arcmask.data.tokenizers import Tokenizer, known_mask
from arcmask.errors import ArcmaskError
from arcmask.model import Wrapped
from arcmask.model.causal import attend_both_ways
from arcmask.model.mdlm import refuse_misfits
from arcmask.model.wrap import WRAP_FILE, check_wrapped

_FAMILIES = {"llada": "LLaDA", "Dream": "Dream"}
# LLaDA's names of the parts of a block, and those of transformers' Llama.
_LLADA_BLOCK = {
    "attn_norm": "input_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_norm": "post_attention_layernorm",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}
_LLADA_ENDS = {"wte": "model.embed_tokens", "ln_f": "model.norm", "ff_out": "lm_head"}
# What the classes do not compute: the settings that ask for it, with the values that do not.
_LLADA_LACKS: dict[str, tuple[Any, ...]] = {
    "alibi": (False,),
    "attention_layer_norm": (False,),
    "input_emb_norm": (False,),
    "scale_logits": (False,),
    "include_bias": (False,),
    "include_qkv_bias": (False,),
    "bias_for_layer_norm": (False,),
    "rope": (True,),
    "layer_norm_with_affine": (True,),
    "block_type": ("llama",),
    "block_group_size": (1,),
    "layer_norm_type": ("rms",),
    "activation_type": ("silu", "swiglu"),
    "residual_dropout": (0,),
    "embedding_dropout": (0,),
    "clip_qkv": (),
    "rope_scaling": (),
}
_DREAM_LACKS: dict[str, tuple[Any, ...]] = {
    "use_sliding_window": (False,),
    "use_mrope": (False,),
    "hidden_act": ("silu",),
    "rope_scaling": (),
}
_ROTARY_BASE = 10000.0  # where the settings do not give one
_FULL_ATTENTION = "full_attention"  # of the kinds that layer_types may name
_ROPE_TYPES = ("rope_type", "type")  # both spellings of a setting of rope_parameters
_DREAM_NUMBERS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)
_DREAM_OPTIONS = ("rms_norm_eps", "attention_dropout", "tie_word_embeddings")
_MOST_LAYERS = 1000


@dataclass(frozen=True)
class PublicLayout:
    """The files of one model: the settings of its config.json, and public key -> key of the transformers class."""

    settings: Mapping[str, Any]
    names: Mapping[str, str]

    def write(self, wrapped: Wrapped, folder: Path, **options: Any) -> None:
        """Write config.json and (sharded) safetensors under their public names."""
        from huggingface_hub import save_torch_state_dict

        state = wrapped.model.state_dict()
        weights = {public: state[name] for public, name in self.names.items()}
        dtype = "dtype" if "dtype" in self.settings else "torch_dtype"
        changes = {"mask_token_id": wrapped.mask_id, dtype: str(wrapped.table.dtype).removeprefix("torch.")}
        save_torch_state_dict(weights, folder, metadata={"format": "pt"}, **options)
        (folder / "config.json").write_text(json.dumps({**self.settings, **changes}, indent=2) + "\n")
        if wrapped.shift != _is_shifted(self.settings):
            (folder / WRAP_FILE).write_text(json.dumps({"shift": wrapped.shift}) + "\n")


def is_public(config: Mapping[str, Any]) -> bool:
    """Return whether a config.json is that of LLaDA or Dream."""
    kind = config.get("model_type")
    return isinstance(kind, str) and kind in _FAMILIES


def _is_shifted(config: Mapping[str, Any]) -> bool:
    """Return whether the outputs of a family predict the next position."""
    return config["model_type"] == "Dream"


def describe_public(source: str, config: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """Return the model that a config.json describes, without weights, and its public key -> key of the class."""
    _refuse_experts(source, config)
    _refuse_windows(source, config)
    return _llada(source, config) if config["model_type"] == "llada" else _dream(source, config)


def open_public(
    folder: Path,
    config: dict[str, Any],
    weights: dict[str, Tensor],
    tokenizer: Tokenizer | None,
    mask_id: int | None = None,
    shift: bool | None = None,
) -> Wrapped:
    """Build LLaDA or Dream from its settings and tensors, which it takes over.

    `mask_id` and `shift` replace its own.
    """
    source = str(folder / "config.json")
    mask_id = known_mask(config) if mask_id is None else mask_id
    model, names = describe_public(source, config)
    rows = model.get_input_embeddings().weight.shape[0]
    if not isinstance(mask_id, int) or not 0 <= mask_id < rows:
        raise ArcmaskError(f"{source}: the mask id is {mask_id}, but the model's table has rows 0 to {rows - 1}")
    if tokenizer is not None and tokenizer.size > rows:
        raise ArcmaskError(f"the tokenizer in {folder} has {tokenizer.size} entries, but the model has {rows}")
    expected = model.state_dict()
    refuse_misfits(str(folder), misfits({public: expected[name] for public, name in names.items()}, weights))
    model.load_state_dict({names[public]: tensor for public, tensor in weights.items()}, strict=False, assign=True)
    model.tie_weights()
    attend_both_ways(model)
    vocabulary = _number(source, config, "vocab_size")
    wrapped = Wrapped(
        model.train(False),
        mask_id,
        shift=_is_shifted(config) if shift is None else shift,
        max_length=model.config.max_position_embeddings,
        text_rows=vocabulary if tokenizer is None else min(vocabulary, tokenizer.size),
        layout=PublicLayout(config, names),
    )
    wrapped.tokenizer = tokenizer if tokenizer is None else replace(tokenizer, mask_id=mask_id)
    check_wrapped(wrapped, both_ways=True)
    return wrapped


def _llada(source: str, config: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """Return an empty Llama for LLaDA's settings, and its keys."""
    from transformers import LlamaConfig, LlamaForCausalLM

    _refuse_lacks(source, "LLaDA", config, _LLADA_LACKS)
    width, heads, layers = (_number(source, config, name) for name in ("d_model", "n_heads", "n_layers"))
    tied = bool(config.get("weight_tying"))
    settings = {
        "vocab_size": _number(source, config, "embedding_size", _number(source, config, "vocab_size")),
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": _number(
            source, config, "n_kv_heads", 1 if config.get("multi_query_attention") else heads
        ),
        "num_hidden_layers": layers,
        "intermediate_size": _number(
            source, config, "mlp_hidden_size", width * _number(source, config, "mlp_ratio", 4)
        ),
        "max_position_embeddings": _number(source, config, "max_sequence_length"),
        "rms_norm_eps": config.get("rms_norm_eps", 1e-5),
        "rope_theta": _rotary_base(source, config),
        "attention_dropout": config.get("attention_dropout", 0.0),
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
    }
    ends = {public: name for public, name in _LLADA_ENDS.items() if not (tied and name == "lm_head")}
    names = {f"model.transformer.{public}.weight": f"{name}.weight" for public, name in ends.items()}
    for layer in range(layers):
        before, behind = f"model.transformer.blocks.{layer}", f"model.layers.{layer}"
        names |= {f"{before}.{public}.weight": f"{behind}.{name}.weight" for public, name in _LLADA_BLOCK.items()}
    return _empty(source, LlamaForCausalLM, LlamaConfig, settings), names


def _dream(source: str, config: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """Return an empty Qwen2 for Dream's settings, and its keys, which are the public ones."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    _refuse_lacks(source, "Dream", config, _DREAM_LACKS)
    settings: dict[str, Any] = {name: _number(source, config, name) for name in _DREAM_NUMBERS}
    settings["num_key_value_heads"] = _number(source, config, "num_key_value_heads", settings["num_attention_heads"])
    settings |= {name: config[name] for name in _DREAM_OPTIONS if config.get(name) is not None}
    settings["rope_theta"] = _rotary_base(source, config)
    model = _empty(source, Qwen2ForCausalLM, Qwen2Config, settings)
    head = {"lm_head.weight"} if settings.get("tie_word_embeddings") else set()
    return model, {name: name for name in model.state_dict() if name not in head}


def _empty(source: str, kind: Any, config_kind: Any, settings: dict[str, Any]) -> Any:
    """Build a model without memory for its weights; buffers, such as rotary frequencies, are real."""
    try:
        with init_empty_weights():
            return kind(config_kind(**settings))
    except Exception as error:  # transformers checks settings with errors of its own
        raise ArcmaskError(f"{source} does not describe a model: {' '.join(str(error).split())}") from error


def _number(source: str, config: dict[str, Any], name: str, default: int | None = None) -> int:
    """Return a setting that is a whole number; without a default it must be there."""
    value = default if config.get(name) is None else config[name]
    most = _MOST_LAYERS if "layers" in name else 10**8
    if type(value) is not int or not 1 <= value <= most:
        raise ArcmaskError(f"{source}: {name} is {value!r}, but must be a whole number from 1 to {most:,}")
    return value


def _rotary_base(source: str, config: dict[str, Any]) -> float:
    """Return the base of the rotary embedding: `rope_theta`, alone or in the `rope_parameters` of transformers 5."""
    family, parameters = _FAMILIES[config["model_type"]], config.get("rope_parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise ArcmaskError(f"{source}: rope_parameters is {parameters!r}, but must hold settings by name")
    for name, value in (parameters or {}).items():
        is_plain = value == "default" if name in _ROPE_TYPES else name == "rope_theta"
        if value is not None and not is_plain:
            raise ArcmaskError(
                f"{source}: rope_parameters has {name} {value!r}, but arcmask opens {family} models with a rope_theta "
                "of type 'default' only"
            )
    bases = [base for base in (config.get("rope_theta"), (parameters or {}).get("rope_theta")) if base is not None]
    if len(bases) > 1 and bases[0] != bases[1]:
        raise ArcmaskError(f"{source}: rope_theta is given twice, as {bases[0]!r} and as {bases[1]!r}")
    base = bases[0] if bases else _ROTARY_BASE
    if type(base) not in (int, float) or not 0 < base < math.inf:
        raise ArcmaskError(f"{source}: rope_theta is {base!r}, but must be a number above 0")
    return float(base)


def _refuse_windows(source: str, config: dict[str, Any]) -> None:
    kinds = config.get("layer_types")
    if kinds is None:
        return
    other = [kind for kind in kinds if kind != _FULL_ATTENTION] if isinstance(kinds, list) else [kinds]
    if other:
        family = _FAMILIES[config["model_type"]]
        raise ArcmaskError(
            f"{source}: layer_types has {other[0]!r}, but arcmask opens {family} models with {_FULL_ATTENTION!r} only"
        )


def _refuse_lacks(source: str, family: str, config: dict[str, Any], lacks: Mapping[str, tuple[Any, ...]]) -> None:
    for name, allowed in lacks.items():
        value = config.get(name)
        if value is not None and value not in allowed:
            choices = " or ".join(map(repr, allowed)) or "None"
            raise ArcmaskError(f"{source}: {name} is {value!r}, but arcmask opens {family} models with {choices} only")


def _refuse_experts(source: str, config: dict[str, Any]) -> None:
    experts = [name for name, value in config.items() if "expert" in name.lower() and value]
    if experts:
        family = _FAMILIES[config["model_type"]]
        raise ArcmaskError(f"{source}: {experts[0]} asks for a mixture of experts, but arcmask opens {family} without")
