"""Small random transformers models of several families."""

import tokenizers as rust
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

MASKED, CAUSAL = ("bert", "modernbert", "roberta", "distilbert"), ("llama", "qwen2", "qwen3", "gpt2")
SCALED = ("gemma", "gemma2", "gemma3")
ROWS = 50  # of the table of a masked LM
CAUSAL_ROWS = 40
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def masked_lm(family: str):
    """A masked LM in evaluation mode."""
    torch.manual_seed(0)
    size = SIZE | {"vocab_size": ROWS}
    if family == "bert":
        model = BertForMaskedLM(BertConfig(**size, max_position_embeddings=20))
    elif family == "modernbert":
        special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
        model = ModernBertForMaskedLM(ModernBertConfig(**size, **special))
    elif family == "roberta":
        model = RobertaForMaskedLM(RobertaConfig(**size, max_position_embeddings=22, pad_token_id=1))
    else:
        model = DistilBertForMaskedLM(DistilBertConfig(vocab_size=ROWS, dim=32, n_layers=2, n_heads=4, hidden_dim=48))
    return model.eval()


def causal_lm(family: str):
    """A causal LM in evaluation mode. Its weights are large, so that attention matters."""
    torch.manual_seed(0)
    if family == "gpt2":
        size = {"vocab_size": CAUSAL_ROWS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24}
        return GPT2LMHeadModel(GPT2Config(**size, initializer_range=0.3)).eval()
    kind, config = {
        "llama": (LlamaForCausalLM, LlamaConfig),
        "qwen2": (Qwen2ForCausalLM, Qwen2Config),
        "qwen3": (Qwen3ForCausalLM, Qwen3Config),
    }[family]
    size = SIZE | {"vocab_size": CAUSAL_ROWS, "num_key_value_heads": 2, "max_position_embeddings": 24}
    size |= {"initializer_range": 0.3} | ({"head_dim": 8} if family == "qwen3" else {})
    return kind(config(**size)).eval()


def scaled_lm(family: str):
    """A causal LM that multiplies its embeddings by a number before its first layer."""
    torch.manual_seed(0)
    kind, config = {
        "gemma": (GemmaForCausalLM, GemmaConfig),
        "gemma2": (Gemma2ForCausalLM, Gemma2Config),
        "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig),
    }[family]
    size = SIZE | {"vocab_size": CAUSAL_ROWS, "num_key_value_heads": 2, "max_position_embeddings": 24, "head_dim": 8}
    size |= {"initializer_range": 0.3} | ({"final_logit_softcapping": None} if family == "gemma2" else {})
    return kind(config(**size)).eval()


def causal_tokenizer(size: int = CAUSAL_ROWS) -> PreTrainedTokenizerFast:
    """A tokenizer of characters with as many entries as the model has rows, and no mask."""
    names = [*"abcdefghijklmnopqrstuvwxyz ", *(f"<{number}>" for number in range(100))][: size - 1]
    inner = rust.Tokenizer(rust.models.BPE({name: number for number, name in enumerate(names)}, []))
    inner.decoder = rust.decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|endoftext|>")
