"""The checks of a plan before anything is trained or written. The run makes them, and so does its dry run."""

from pathlib import Path

from arcmask.checkpoint.fitting import check_corpus
from arcmask.data import open_prepared, open_tokenizer
from arcmask.data.job import rows_to_come
from arcmask.data.packing import describe_job
from arcmask.data.prepared import is_prepared
from arcmask.errors import ArcmaskError
from arcmask.evaluation.evaluator import Evaluator
from arcmask.evaluation.nearest import open_neighbours
from arcmask.evaluation.scores import LEAST, has_mauve
from arcmask.experiment.extension import check_extension
from arcmask.experiment.held_out import held_out_prompts
from arcmask.feedback import find_operator
from arcmask.files import UNFINISHED, writable
from arcmask.model import Model
from arcmask.ranks import rank, world_size
from arcmask.run_folder import LOCK, PLAN, SAMPLES, TRAINING, cell_folder, prompts_file, read_settings
from arcmask.sampling import generate
from arcmask.sampling.prompts import HOLE, Prompts, open_prompts
from arcmask.settings.experiment import Plan
from arcmask.settings.sample import SampleConfig
from arcmask.training.checks import check_batches, check_before_loading
from arcmask.training.start import set_up


def check_plan(plan: Plan, folder: Path) -> None:
    """Make every check that needs neither the data nor a model, and check that the plan may continue the folder."""
    for operator in plan.operators:
        find_operator(operator)
    for config in plan.trainings:
        check_batches(config, world_size())
    for arm in plan.arms if plan.budgets else ():
        generate.check_settings(_sample(plan, arm, folder))
    if plan.budgets and plan.generation.ends is None:
        open_prompts(_sample(plan, next(iter(plan.arms)), folder))
    needs_mauve, samples = plan.generation.features is not None and bool(plan.budgets), plan.generation.samples
    if needs_mauve and not has_mauve():
        raise ArcmaskError(
            f"{plan.recipe} computes MAUVE, which needs mauve-text: pip install 'arcmask[eval]', or leave it out with "
            "--features none"
        )
    if needs_mauve and samples < LEAST:
        raise ArcmaskError(
            f"MAUVE needs {LEAST} samples per cell, but there are {samples}; leave it out with --features none"
        )
    if (folder / PLAN).exists():
        check_extension(folder, read_settings(folder / PLAN), plan.to_json())
    elif rank() == 0 and folder.exists() and {entry.name for entry in folder.iterdir()} - {LOCK, PLAN + UNFINISHED}:
        raise ArcmaskError(f"{folder} is not empty and has no {PLAN}; give another folder")
    writable(folder, is_folder=True)


def _sample(plan: Plan, arm: str, folder: Path) -> SampleConfig:
    """Return the settings of the first cell of an arm."""
    seed = plan.seeds[0]
    return plan.sample(arm, plan.base, seed, plan.budgets[0], folder / SAMPLES, prompts_file(folder, seed))


def check_scorable(plan: Plan, evaluator: Evaluator | None) -> None:
    """Raise if an evaluator of one kind of sequence cannot score what fills in the prompts."""
    if evaluator is None or evaluator.own_tokenizer is None or plan.generation.prompts is None:
        return
    symbol = (open_tokenizer(evaluator.own_tokenizer).symbols or "?")[0]
    evaluator.encode([text.replace(HOLE, symbol) for text in Prompts(plan.generation.prompts).texts])


def check_fit(plan: Plan, folder: Path, base: Model | None) -> None:
    """Check that the base and the data fit each other, the samples and the settings of training.

    Data that are not prepared yet are checked by what will prepare them. `base` is None if it is yet to be fetched.
    """
    if base is not None:
        length = plan.generation.length
        if base.max_length is not None and length > base.max_length:
            raise ArcmaskError(f"length is {length}, but {plan.base} takes at most {base.max_length} positions")
        for training in plan.trainings:
            if training is not plan.pretrain:  # which makes the base
                set_up(training, base)
        if plan.budgets and plan.generation.prompts is not None:
            Prompts(plan.generation.prompts).starts(base, length, plan.generation.samples)
    if plan.prepare is not None and not is_prepared(plan.data):
        describe_job(plan.prepare)
        if plan.generation.nearest and plan.prepare.pack != "none":
            raise ArcmaskError(f"nearest needs rows of one document each, but prepare has pack {plan.prepare.pack}")
        form = rows_to_come(plan.prepare)
        if base is not None and form is not None:
            check_corpus(form, base)
        return
    corpus = open_prepared(plan.data, "validation")
    if base is not None:
        check_corpus(corpus, base)
    if plan.budgets and plan.generation.nearest:
        open_neighbours(plan.data)
    for seed in plan.seeds if plan.budgets and plan.generation.ends is not None else ():
        held_out_prompts(corpus, plan.generation, seed)
    seed = plan.seeds[0]
    for arm in (*plan.arms, *plan.ablations):
        config = plan.train(arm, seed)
        if config is not None:
            check_before_loading(config, cell_folder(folder, arm, seed) / TRAINING)
