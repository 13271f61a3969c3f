"""Feedback in a BERT: wrap the model, choose an operator, and sample.

    python examples/bert.py

The BERT here is small and has random weights, so the example needs no download.
"""

import torch
from transformers import BertConfig, BertForMaskedLM

import arcmask
from arcmask.feedback import Confidence, SoftMask

# For a released model, replace the next five lines with: denoiser = arcmask.load("google-bert/bert-base-uncased")
MASK_ID = 103
torch.manual_seed(0)
config = BertConfig(vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
model = BertForMaskedLM(config).eval()
denoiser = arcmask.wrap(model, mask_id=MASK_ID)

# The operator blends the mask's embedding with those of the three most probable tokens. The weight of the blend is
# constant here; Confidence() computes it from the entropy of each prediction, with three scalars that can be trained.
feedback = SoftMask("spherical", top_k=3, confidence=Confidence(fixed=0.3))

# One call of the operator: tokens (B, L) and logits (B, L, V) give the embeddings (B, L, D) of the next pass.
tokens = torch.tensor([[7, MASK_ID, 9, MASK_ID]])
with torch.no_grad():
    logits = model(tokens).logits
    blended = feedback(tokens, logits, denoiser.table, MASK_ID)
print("embeddings", tuple(blended.embeddings.shape), "angles in degrees", blended.angle.rad2deg().tolist())

# The sampler does this at every step in the time band from 0.2 to 0.8. The prompt is a list of ids; MASK_ID is a hole.
for name, operator in (("no feedback", None), ("spherical", feedback)):
    samples = arcmask.sample(
        denoiser, num=2, steps=8, feedback=operator, prompt=[7, 8, *[MASK_ID] * 8, 9], precision="float32"
    )
    print(name, samples.tokens.tolist())
