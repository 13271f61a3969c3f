"""Sampling with a prompt: continue a text, and fill holes in it, with and without feedback.

    python examples/prompt.py

`sotu-tiny` is a character model that comes with the package. Its symbols are the letters a to z and the space. It was
trained without feedback, so a warning says that feedback is used all the same.
"""

import arcmask
from arcmask.feedback import Confidence, SoftMask

denoiser = arcmask.load("sotu-tiny")
feedback = SoftMask("spherical", confidence=Confidence(fixed=0.3))

# A prompt that is shorter than the sample is continued. [MASK] is a hole of one token; the rest of a prompt is kept.
start = "the people of the united states "
holes = "the congress of the " + "[MASK]" * 12 + " shall have power to " + "[MASK]" * 12

for title, prompt, length in (("Continued", start, 80), ("Filled in", holes, None)):
    for name, operator in (("no feedback", None), ("spherical", feedback)):
        # Both use the same seed, so they share all random draws. A sample depends only on the seed and on its index.
        samples = arcmask.sample(denoiser, num=2, length=length, steps=32, feedback=operator, prompt=prompt, seed=1)
        print(f"{title}, {name} ({int(samples.calls[0])} calls of the model):")
        for text in samples.texts or ():
            print(f"  {text}")
