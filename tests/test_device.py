"""On a device that only pretends: no operation mixes devices, the numbers are the CPU's, and few kernels are launched.

The counts are held against the table in docs/performance.md, which is where they are kept.
"""

import re
from functools import cache
from pathlib import Path

import pytest
import torch
from evaluators import TOKENIZER, small_gpt2
from models import small_mdlm, some_tokens

from arcmask.blocks import send
from arcmask.data import TensorRows, open_tokenizer
from arcmask.diagnostics.inspection import inspect
from arcmask.evaluation.evaluator import make_evaluator
from arcmask.evaluation.scores import text_features, text_losses
from arcmask.feedback import OPERATORS, Gate, SoftMask
from arcmask.feedback.calibration import draft_entropies
from arcmask.objective import TwoPass, likelihood_bound
from arcmask.sampling import RULES, Filter, Sampler, sample
from arcmask.sampling.draws import Draws
from arcmask.settings.evaluate import PerplexitySettings
from arcmask.settings.inspect import InspectConfig
from arcmask.settings.train import TrainConfig
from arcmask.training.metrics import Sums
from arcmask.training.optimiser import Average, build_optimiser, set_rates
from arcmask.tuning import tune
from pretend_device import DEVICE, MixedDevicesError, pretend_device

V, B, L = 50_258, 2, 16  # GPT-2's vocabulary: blocks for a CPU would have five rows
BLOCKS = 12  # as in the 169M model
TEXTS = ["We hold these truths to be self-evident,", "that all men are created equal", "the cat."]
TRAINING = TrainConfig(data="data", init="new:tiny", learning_rate=1e-3)
DOCS = Path(__file__).parents[1] / "docs" / "performance.md"


def model(device: torch.device | str = "cpu"):
    return small_mdlm(vocab_size=V, n_blocks=BLOCKS).to(device)


def batch(device: torch.device | str = "cpu") -> tuple[torch.Tensor, ...]:
    draw = Gate(least_time=0.1).draw(1, 2, B, L)
    rows = some_tokens(b=B, length=L, vocab_size=V).clamp_max(V - 2)
    return rows.to(device), draw.time.to(device, torch.float32), draw.masked.to(device)


@cache
def documented() -> dict[str, tuple[int, ...]]:
    """Return kernels, waits and copies by the names in the documentation's table."""
    rows = re.findall(r"^\| ([^|]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", DOCS.read_text(), re.MULTILINE)
    return {name: tuple(int(number.replace(",", "")) for number in numbers) for name, *numbers in rows}


def assert_as_documented(name: str, counts: tuple[int, ...]) -> None:
    limits = documented()[name]
    assert all(count <= limit for count, limit in zip(counts, limits, strict=True)), f"{name}: {counts}, not {limits}"


def test_the_pretend_device_refuses_what_a_gpu_refuses_and_counts_the_rest():
    with pretend_device() as counts:
        x, y = send(torch.arange(6.0), DEVICE), torch.arange(6.0)
        assert (x.device, (x + torch.tensor(1.0)).device) == (DEVICE, DEVICE)
        assert counts.numbers == (1, 0, 1)
        for mixed in (lambda: x + y, lambda: x[torch.tensor([0])], lambda: torch.cat([y, x])):
            with pytest.raises(MixedDevicesError):
                mixed()
        x[2:].view(2, 2)[0] = 7  # written through views
        assert x.tolist() == [0, 1, 7, 7, 4, 5]
        assert counts.waits == {"cpu": 1}
        assert x[x > 4].sum().item() == 19
        assert torch.zeros(2).to(DEVICE).cpu().tolist() == [0, 0]
        assert bool(x.any())
        assert counts.waits == {"index": 1, "_local_scalar_dense": 2, "cpu": 2, "blocking copy": 1}


def training_step(
    device: torch.device | str, operator: str, feedback: bool
) -> tuple[list[torch.Tensor], tuple[int, int, int]]:
    """Return the metrics and all gradients of a step, and what it launched; the optimiser is not part of it."""
    with pretend_device() as counts:
        objective, inputs = TwoPass(model(device), SoftMask(operator)).to(device), batch(device)
        counts.reset()
        result = objective(*inputs, feedback=feedback)
        result.loss.backward()
        sums, numbers = Sums.of(result), counts.numbers
        return [sums, *(parameter.grad.cpu() for parameter in objective.parameters())], numbers


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_a_training_step(operator):
    for feedback in (False, True):
        expected, _ = training_step("cpu", operator, feedback)
        step, numbers = training_step(DEVICE, operator, feedback)
        torch.testing.assert_close(step, expected, rtol=1e-4, atol=1e-4)
        if operator in ("none", "spherical") and feedback:
            passes = "one pass" if operator == "none" else f"two passes, `{operator}`"
            assert_as_documented(f"training step: {passes}", numbers)


def update(device: torch.device | str) -> tuple[list[torch.Tensor], tuple[int, int, int]]:
    """Return the weights and their average after two updates, and what the second one launched."""
    with pretend_device() as counts:
        objective = TwoPass(model(device), SoftMask()).to(device)
        optimiser = build_optimiser(TRAINING, objective.denoiser, objective.feedback)
        parameters = dict(objective.named_parameters())
        average = Average(parameters, decay=0.9)
        for _ in range(2):
            objective(*batch(device), feedback=True).loss.backward()
            counts.reset()
            set_rates(optimiser, 0.5)
            float(torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0))
            optimiser.step()
            average.update(parameters)
            numbers = counts.numbers
            optimiser.zero_grad(set_to_none=True)
        tensors = [*parameters.values(), *average.shadow.values()]
        return [tensor.detach().cpu() for tensor in tensors], numbers


def test_the_update_of_a_training_step_waits_for_the_norm_alone():
    expected, _ = update("cpu")
    weights, (_, waits, copies) = update(DEVICE)
    torch.testing.assert_close(weights, expected, rtol=1e-4, atol=1e-4)
    assert (waits, copies) == (1, 0)


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("settings", [{}, {"top_p": 0.9}, {"top_k": 5}, {"trace": True}])
def test_every_rule_draws_the_samples_of_the_cpu(rule, settings):
    samples = []
    for device in ("cpu", DEVICE):
        with pretend_device():
            denoiser = small_mdlm(vocab_size=28).to(device)
            options = {"num": 3, "steps": 8, "rule": rule, "feedback": SoftMask().to(device), "precision": "float32"}
            samples.append(sample(denoiser, **options, **settings).tokens)
    assert torch.equal(*samples)


TIMES = [1 - step / 6 for step in range(6)]
IN_BAND = [0.2 <= time <= 0.8 for time in TIMES]  # of the steps, which have feedback from the second on


def sampling_steps(monkeypatch, rule: str, feedback: SoftMask | None, **settings) -> list[tuple[int, ...]]:
    """Return the counts of six steps, three of which are in the band."""
    counted = []
    with pretend_device() as counts:
        denoiser = model(DEVICE)

        def step(self, *arguments):
            counts.reset()
            real(self, *arguments)
            counted.append(counts.numbers)

        real = Sampler._step
        monkeypatch.setattr(Sampler, "_step", step)
        feedback = None if feedback is None else feedback.to(DEVICE)
        sampler = Sampler(denoiser=denoiser, rule=RULES[rule](), steps=6, feedback=feedback, filter=Filter(**settings))
        sampler.run(torch.full((B, L), V - 1), Draws(seed=0, indices=range(B)))
        monkeypatch.undo()
    return counted


def largest(counts: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(max, zip(*counts, strict=True)))


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_sampling_step(rule, monkeypatch):
    name = f"sampling step, `{rule}`" if rule == "confidence" else "sampling step, other rules"
    assert_as_documented(f"{name}: plain", largest(sampling_steps(monkeypatch, rule, None)))
    assert_as_documented(f"{name}: plain, top-p 0.9", largest(sampling_steps(monkeypatch, rule, None, top_p=0.9)))
    with_feedback = sampling_steps(monkeypatch, rule, SoftMask())
    assert_as_documented(f"{name}: in the band, `spherical`", largest(with_feedback))
    if rule != "first-hitting":  # whose times are drawn
        # The first two steps have no candidates yet, or are outside; the last is outside, and nothing follows it.
        assert IN_BAND == [False, False, True, True, True, False]
        outside = [with_feedback[0], with_feedback[-1]]
        assert_as_documented(f"{name}: plain", largest(outside))
        inside = [counts for counts, is_inside in zip(with_feedback, IN_BAND, strict=True) if is_inside]
        assert min(kernels for kernels, *_ in inside) > max(kernels for kernels, *_ in outside), "they feed back"


def test_calibration_tuning_and_the_inspection_of_a_model():
    """All of them run before an experiment trains, on the device that trains."""
    rows, measured = some_tokens(b=4, length=L, vocab_size=28).clamp_max(26), {}
    names = ("gain", "norms", "angles", "paths", "sphere", "confidence", "karcher", "accuracy")
    config = InspectConfig(checkpoint="small", only=names, operators=("spherical",), tokens=64, gain_tokens=64)
    for device in ("cpu", DEVICE):
        with pretend_device():
            denoiser = small_mdlm(vocab_size=28, n_blocks=1).to(device)
            denoiser.tokenizer = open_tokenizer("text8")
            corpus = TensorRows(rows, mask_id=27, tokenizer=denoiser.tokenizer)
            tuned = tune(denoiser, rows, "spherical", fixed=True)
            inspection = inspect(config, denoiser, corpus)
            numbers = [
                draft_entropies(denoiser, rows),
                torch.tensor([tuned.difference, tuned.feedback.confidence.fixed]),
            ]
            measured[device] = numbers, inspection.readings
    torch.testing.assert_close(measured["cpu"][0], measured[DEVICE][0], rtol=1e-4, atol=1e-5)
    assert measured["cpu"][1] == measured[DEVICE][1]


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_the_likelihood_bound(operator):
    bounds = []
    for device in ("cpu", DEVICE):
        with pretend_device() as counts:
            objective, rows = TwoPass(model(device), SoftMask(operator)).to(device), [batch()[0]] * 3
            counts.reset()
            bounds.append(likelihood_bound(objective, rows, feedback=True).nats)
    assert bounds[1] == pytest.approx(bounds[0], rel=1e-5)
    if operator == "spherical":
        assert_as_documented("likelihood bound, `spherical`: three batches", counts.numbers)


def test_evaluation_losses_and_features():
    settings = PerplexitySettings()
    scores: dict[str, list] = {}
    for name, score in {"losses": text_losses, "features": text_features}.items():
        for device in ("cpu", DEVICE):
            with pretend_device() as counts:
                evaluator = make_evaluator("small", "0" * 64, small_gpt2().to(device), TOKENIZER.inner)
                counts.reset()
                values = score(evaluator, TEXTS, settings, cache=None)
            values = values if name == "features" else [loss.nats for loss in values]
            scores.setdefault(name, []).append(torch.as_tensor(values))
        torch.testing.assert_close(*scores[name], rtol=1e-5, atol=1e-5)
        assert_as_documented(f"evaluation, a batch of texts: {name}", counts.numbers)
