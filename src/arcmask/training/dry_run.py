"""What a training run would take: time and memory from counted operations and the speeds of a machine."""

from contextlib import suppress
from pathlib import Path

from arcmask.data import PreparedCorpus, open_prepared
from arcmask.data.prepared import INDEX
from arcmask.data.tokenizers import vocabulary_size
from arcmask.downloads import NotFetchedError, offline
from arcmask.estimates import Layout, Machine, base_layout, memory, work
from arcmask.estimates.disk import data_parts, download_parts
from arcmask.estimates.phrases import describe_disk, describe_memory, describe_time
from arcmask.model import best_device
from arcmask.ranks import world_size
from arcmask.settings.prepare import PrepareConfig
from arcmask.settings.train import TrainConfig
from arcmask.training.checks import build_feedback, check_before_loading
from arcmask.training.start import build_model, calibrate, describe_start, measure_entropies

MASKED = 0.5  # share of positions, over all times
_DROPOUT = 0.1  # of a model whose own dropout is kept


def step_seconds(config: TrainConfig, layout: Layout, length: int, machine: Machine, world: int) -> float:
    """Return the seconds of a training step that `world` processes share, each on such a machine."""
    share = 0.0 if config.operator == "none" else config.gate_probability
    position = work.training(layout, length, masked=MASKED, feedback=share, recompute=config.checkpoint_blocks)
    step = position * (config.batch_size * length / world) + work.optimising(layout)
    return machine.seconds(step, config.precision)


def validation_seconds(config: TrainConfig, layout: Layout, length: int, machine: Machine, world: int) -> float:
    """Return the seconds of all validations of a run."""
    config = config.computed(has_held_out=True)
    validations = config.steps // int(config.validate_every) if config.validate_every else 0
    passes = 1 if config.operator == "none" else 3
    rows = passes * config.validation_rows * validations / world
    return machine.seconds(work.bounding(layout, length, masked=MASKED) * (rows * length), config.precision)


def training_memory(config: TrainConfig, layout: Layout, length: int, machine: Machine, world: int) -> memory.Memory:
    """Return the memory of a training step in one process."""
    return memory.training(
        layout,
        rows=min(config.micro_batch, config.batch_size // world),
        length=length,
        precision=machine.precision(config.precision),
        dropout=_DROPOUT if config.dropout is None else config.dropout,
        recompute=config.checkpoint_blocks,
        world=world,
        device=machine.device,
    )


def describe_training(
    config: TrainConfig, run: Path, prepare: PrepareConfig | None = None, card: str | None = None
) -> str:
    """Check the settings, and describe the run and what it takes. Nothing is fetched or written.

    `prepare` says how the data will be made if they do not exist yet. `card` names a GPU in place of this machine.
    """
    world, is_prepared = world_size(), prepare is None or (Path(prepare.out) / INDEX).is_file()
    with offline():
        corpus = open_prepared(config.data, "train") if is_prepared else None
        config = check_before_loading(config, run) if is_prepared else config.computed(has_held_out=True)
        length, vocabulary = _sizes(corpus, prepare)
        layout = base_layout(config.init, vocabulary)
        machine = Machine.find(card, layout.width)
        lines = [
            *_describe_run(config, layout, length, corpus),
            _describe_time(config, layout, length, machine, world),
            describe_memory({"training": training_memory(config, layout, length, machine, world)}, machine),
            _describe_disk(config, layout, run, prepare),
        ]
        with suppress(NotFetchedError):
            lines += [] if corpus is None or not config.learns_weight else _describe_start(config, corpus)
    return "\n".join(lines)


def _sizes(corpus: PreparedCorpus | None, prepare: PrepareConfig | None) -> tuple[int, int]:
    """Return the length of a row and the size of the vocabulary, of data that exist or that will."""
    if corpus is not None:
        return corpus.length, corpus.vocab_size
    assert prepare is not None
    return prepare.length, vocabulary_size(prepare.tokenizer)


def _describe_run(config: TrainConfig, layout: Layout, length: int, corpus: PreparedCorpus | None) -> list[str]:
    rows = config.steps * config.batch_size
    epochs = "" if corpus is None else f": {rows / len(corpus):.2f} epochs of {len(corpus):,} rows"
    return [
        f"{layout.parameters:,} parameters; {config.steps:,} steps of {config.batch_size} x {length} tokens, "
        f"{rows * length:,} in all{epochs}"
    ]


def _describe_time(config: TrainConfig, layout: Layout, length: int, machine: Machine, world: int) -> str:
    share = machine.speed_up(world)
    step = step_seconds(config, layout, length, machine, share)
    total = config.steps * step + validation_seconds(config, layout, length, machine, share)
    precision = machine.precision(config.precision)
    return f"time: {describe_time(total, machine, world)}, {step:.3g} s per step, in {precision}"


def _describe_disk(config: TrainConfig, layout: Layout, run: Path, prepare: PrepareConfig | None) -> str:
    checkpoints = config.checkpoint_bytes * layout.parameters * config.keep
    return describe_disk(
        {
            f"{config.keep} checkpoint{'' if config.keep == 1 else 's'} in {run}": checkpoints,
            **data_parts(config.data, prepare),
            **download_parts({config.init: layout}),
        }
    )


def _describe_start(config: TrainConfig, corpus: PreparedCorpus) -> list[str]:
    """Describe the weights that feedback starts with, which needs the model."""
    model = build_model(config, corpus).to(best_device())
    entropy = measure_entropies(config, corpus, model)
    config = calibrate(config, entropy)
    confidence = build_feedback(config).to(best_device()).confidence
    extreme = confidence.describe_extreme(confidence(entropy.to(best_device())))
    return [describe_start(config, entropy), *([] if extreme is None else [extreme])]
