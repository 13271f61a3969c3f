"""AntiBERTy, a BERT for antibody sequences, out of its package: a real pre-trained model that needs no hub.

Its weights are read without running the pickle that holds them, and kept in the cache as safetensors.
"""

import json
from pathlib import Path

import safetensors.torch

from arcmask.checkpoint.pickles import read_torch_file
from arcmask.data import open_tokenizer
from arcmask.downloads import cached_folder, download_files

ANTIBERTY = "antiberty"
_PACKAGE = "antiberty==0.1.3"  # later versions hold no weights
_FILES = {
    "AntiBERTy_md_smooth/config.json": "e199c1692b5f0246ebc5522102044d6e900ffc7d56fa5932fdd5b3d56ef487e9",
    "AntiBERTy_md_smooth/pytorch_model.bin": "f1ae33eac8cc8784a7d4be5a600141d2fa7bc7d8d5b3f5324d64a6a63bd0f137",
}


def fetch_antiberty(package: str = _PACKAGE) -> Path:
    """Return the folder of AntiBERTy, as transformers opens it. The first call downloads 97 MB and keeps 103 MB."""

    def build(folder: Path) -> None:
        download_files(f"the model {ANTIBERTY}", package, _FILES, folder)
        _write_out(folder)

    return cached_folder(f"models/{ANTIBERTY}-{_FILES['AntiBERTy_md_smooth/pytorch_model.bin'][:8]}", build)


def _write_out(folder: Path) -> None:
    """Replace the pickle by safetensors, and add a tokenizer."""
    pickled = folder / "pytorch_model.bin"
    weights = read_torch_file(pickled)
    # Heads for species, chain and graft, and the pooler, are not those of a masked LM; the output layer is tied.
    unused = ("cls.species", "cls.chain", "cls.graft", "bert.pooler", "cls.predictions.decoder")
    kept = {
        name: tensor.clone()
        for name, tensor in weights.items()
        if not name.startswith(unused) and name != "bert.embeddings.position_ids"
    }
    safetensors.torch.save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    del config["_name_or_path"], config["gradient_checkpointing"]
    config |= {"architectures": ["BertForMaskedLM"], "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    open_tokenizer("residues").save(folder)
    pickled.unlink()
