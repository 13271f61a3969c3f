"""On a real GPU: the numbers of the CPU, no more waits than documented, resuming, compiling, and several GPUs.

`make test-gpu` runs these tests. Without a GPU all of them are skipped.
"""

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from evaluators import TOKENIZER, small_gpt2
from models import small_mdlm, some_tokens

from arcmask.evaluation.evaluator import make_evaluator
from arcmask.evaluation.scores import text_features, text_losses
from arcmask.feedback import OPERATORS, Gate, SoftMask
from arcmask.model import MDLM, autocast
from arcmask.objective import TwoPass, likelihood_bound
from arcmask.sampling import RULES, Filter, Sampler, sample
from arcmask.sampling.draws import Draws
from arcmask.settings.evaluate import PerplexitySettings
from arcmask.training import train
from arcmask.training.metrics import Sums
from test_device import TEXTS, documented

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
V, B, L = 50_258, 4, 16


def batch(device: str) -> tuple[torch.Tensor, ...]:
    draw = Gate(least_time=0.1).draw(1, 2, B, L)
    rows = some_tokens(b=B, length=L, vocab_size=V).clamp_max(V - 2)
    return rows.to(device), draw.time.to(device, torch.float32), draw.masked.to(device)


def gradients(device: str, operator: str, precision: str = "float32") -> dict[str, torch.Tensor]:
    objective = TwoPass(small_mdlm(vocab_size=V), SoftMask(operator)).to(device).train()
    with autocast(precision, device):
        loss = objective(*batch(device), feedback=True).loss
    loss.backward()
    named = {name: parameter.grad.cpu() for name, parameter in objective.named_parameters()}
    return {"loss": loss.detach().cpu(), **named}


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_a_training_step_has_the_loss_and_gradients_of_the_cpu(operator):
    torch.testing.assert_close(gradients(DEVICE, operator), gradients("cpu", operator), rtol=1e-3, atol=1e-3)


def test_in_bfloat16_every_weight_has_a_gradient_after_the_draft_pass():
    exact, rounded = (gradients(DEVICE, "spherical", precision) for precision in ("float32", "bfloat16"))
    assert float(rounded["loss"]) == pytest.approx(float(exact["loss"]), rel=0.05)
    for name, gradient in rounded.items():
        assert bool(gradient.isfinite().all()), name
        # Those of the three scalars are sums of small terms with both signs, so rounding shows more.
        tolerance = 0.6 if "confidence" in name else 0.3
        assert float(gradient.norm()) == pytest.approx(float(exact[name].norm()), rel=tolerance, abs=1e-3), name


def waits(run) -> int:
    """Return how often the host waits for the GPU in a call that has warmed up."""
    run()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch.cuda.set_sync_debug_mode("warn")  # which warns itself, once, that it is a prototype
            caught.clear()
            run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in caught)


def test_a_training_step_waits_no_more_than_documented():
    objective, inputs = TwoPass(small_mdlm(vocab_size=V), SoftMask()).to(DEVICE).train(), batch(DEVICE)

    def step() -> None:
        result = objective(*inputs, feedback=True)
        result.loss.backward()
        Sums.of(result)

    assert waits(step) <= documented()["training step: two passes, `spherical`"][1]


def test_sampling_waits_no_more_than_documented():
    sampler = Sampler(
        denoiser=small_mdlm(vocab_size=V).to(DEVICE),
        rule=RULES["ancestral"](),
        steps=6,
        feedback=SoftMask().to(DEVICE),
        filter=Filter(),
    )
    start = torch.full((B, L), V - 1)
    per_step = documented()["sampling step, other rules: in the band, `spherical`"][1]
    # The last pass, which fills what is left, waits for its tokens too.
    assert waits(lambda: sampler.run(start, Draws(seed=0, indices=range(B)))) <= 6 * per_step + 1


@pytest.mark.parametrize("rule", sorted(RULES))
def test_samples_are_whole_and_repeat(rule):
    denoiser = small_mdlm(vocab_size=V).to(DEVICE)
    options = {"num": 3, "steps": 8, "rule": rule, "feedback": SoftMask().to(DEVICE), "top_p": 0.9}
    first, second = (sample(denoiser, **options, precision="float32").tokens for _ in range(2))
    assert torch.equal(first, second)
    assert first.shape == (3, 16)
    assert int(first.max()) < V - 1, "nothing is masked"


def test_samples_in_float32_are_nearly_those_of_the_cpu():
    options = {"num": 8, "steps": 8, "precision": "float32"}
    ours, theirs = (
        sample(small_mdlm(vocab_size=28).to(device), feedback=SoftMask().to(device), **options).tokens
        for device in (DEVICE, "cpu")
    )
    assert float((ours == theirs).float().mean()) > 0.9  # a draw may fall between two roundings


def test_the_bound_and_the_scores_are_those_of_the_cpu():
    numbers = []
    for device in (DEVICE, "cpu"):
        objective = TwoPass(small_mdlm(vocab_size=V), SoftMask()).to(device)
        bound = likelihood_bound(objective, [batch("cpu")[0]] * 2, feedback=True).nats
        evaluator = make_evaluator("small", "0" * 64, small_gpt2().to(device), TOKENIZER.inner)
        losses = text_losses(evaluator, TEXTS, PerplexitySettings(), cache=None)
        features = text_features(evaluator, TEXTS, PerplexitySettings(), cache=None)
        numbers.append([torch.tensor([bound, *(loss.nats for loss in losses)]), torch.as_tensor(features)])
    torch.testing.assert_close(*numbers, rtol=1e-3, atol=1e-3)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(max((run / "checkpoints").iterdir()) / "model.safetensors")


def test_a_resumed_run_ends_where_an_unbroken_one_does(config, tmp_path):
    config = replace(config, precision="bfloat16", curve="constant")
    train(config, tmp_path / "whole")
    for steps in (6, 12):
        train(replace(config, steps=steps), tmp_path / "resumed")
    torch.testing.assert_close(weights(tmp_path / "resumed"), weights(tmp_path / "whole"), rtol=1e-3, atol=1e-3)


@pytest.mark.filterwarnings("ignore")  # of the compiler itself
def test_compiled_blocks_give_the_same_run(config, tmp_path):
    config = replace(config, dropout=0.0, steps=3, validate_every=0)
    for compile_blocks in (False, True):
        train(replace(config, compile_blocks=compile_blocks), tmp_path / str(compile_blocks))
    torch.testing.assert_close(weights(tmp_path / "True"), weights(tmp_path / "False"), rtol=1e-3, atol=1e-4)


def test_a_step_of_the_169m_model_fits_a_card_with_24_gb():
    model = MDLM.create("small", V, dropout=0.1).to(DEVICE).train()
    objective = TwoPass(model, SoftMask()).to(DEVICE)
    optimiser = torch.optim.AdamW(objective.parameters())
    draw = Gate().draw(0, 0, 16, 1024)
    rows = torch.randint(0, V - 1, (16, 1024), device=DEVICE)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        with autocast("bfloat16", DEVICE):
            loss = objective(rows, draw.time.float().to(DEVICE), draw.masked.to(DEVICE), feedback=True).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    assert torch.cuda.max_memory_allocated() < 20e9


def test_two_gpus_train_what_one_trains(corpus, tmp_path):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU, and this needs two")
    settings = ["--data", corpus, "--init", "new:tiny", "--steps", "4", "--batch_size", "8", "--micro_batch", "2"]
    settings += ["--dropout", "0", "--precision", "float32", "--validate_every", "0"]
    for processes in ("1", "2"):
        command = [sys.executable, "-m", "arcmask", "train", *settings, "--processes", processes]
        subprocess.run([*command, "--run", str(tmp_path / processes)], check=True)
    torch.testing.assert_close(weights(tmp_path / "2"), weights(tmp_path / "1"), rtol=1e-3, atol=1e-5)
