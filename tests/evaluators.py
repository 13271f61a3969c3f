"""A small GPT-2 over a small byte-level BPE, which stands in for an evaluator."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from arcmask.data import train_bpe

TOKENIZER = train_bpe(["We hold these truths to be self-evident, that all men are created equal; the cat."] * 9, 300)


def small_gpt2(seed: int = 0) -> GPT2LMHeadModel:
    """Random, with logits that differ by several nats, and a context of 64."""
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
    ends = {"bos_token_id": TOKENIZER.end_id, "eos_token_id": TOKENIZER.end_id}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=TOKENIZER.size, **ends, **sizes))
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=draw))
    return model.eval()
