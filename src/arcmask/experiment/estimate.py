"""What an experiment would take: its plan in words, and time, memory and disk space. Nothing is fetched or written."""

from pathlib import Path

from arcmask.checkpoint import load
from arcmask.data import open_prepared
from arcmask.data.tokenizers import vocabulary_size
from arcmask.downloads import NotFetchedError, offline
from arcmask.estimates import Layout, Machine, base_layout, evaluator_layout, memory
from arcmask.estimates.disk import RESULT, SAMPLE, data_parts, download_parts
from arcmask.estimates.phrases import describe_disk, describe_memory, describe_time, format_duration
from arcmask.evaluation.evaluator import BATCH, CHUNK, check_evaluator, find_evaluator
from arcmask.experiment.costs import Costs
from arcmask.experiment.fetches import describe_fetches
from arcmask.experiment.plan_checks import check_fit, check_plan
from arcmask.model import Model
from arcmask.ranks import world_size
from arcmask.settings.experiment import Arm, Plan
from arcmask.settings.train import TrainConfig
from arcmask.training.dry_run import training_memory


def describe(plan: Plan, folder: str | Path | None = None, card: str | None = None) -> str:
    """Check a plan as `reproduce` does, and describe it and what it takes, on this machine or with a card."""
    folder = plan.folder if folder is None else Path(folder)
    with offline():
        check_plan(plan, folder)
        for name in _evaluators(plan):
            check_evaluator(name)
        check_fit(plan, folder, _find_base(plan))
        return "\n".join([*_describe_plan(plan), *_describe_costs(plan, card), describe_fetches(plan)])


def _find_base(plan: Plan) -> Model | None:
    """Load the base, unless it is yet to be fetched or trained."""
    if plan.pretrain is not None:
        return None
    try:
        return load(plan.base)
    except NotFetchedError:
        return None


def find_costs(plan: Plan, card: str | None = None) -> Costs:
    """Find the layouts of the plan's models, and time this machine unless a card is named."""
    base = plan_layout(plan)
    machine = Machine.find(card, base.width)
    return Costs(
        plan=plan,
        base=base,
        evaluators=_evaluator_layouts(plan),
        machine=machine,
        world=machine.speed_up(world_size()),
        is_characters=_tokenizer(plan) == "text8",
    )


def plan_layout(plan: Plan) -> Layout:
    """Return the layout of the plan's base, of one that is yet to be trained too."""
    if plan.pretrain is None:
        return base_layout(plan.base)
    return base_layout(plan.pretrain.init, vocabulary_size(_tokenizer(plan)))


def _tokenizer(plan: Plan) -> str:
    return open_prepared(plan.data).index.tokenizer if plan.prepare is None else plan.prepare.tokenizer


def _evaluators(plan: Plan) -> list[str]:
    """Return the names of the evaluators that a plan uses, each once."""
    names = (plan.generation.evaluator, plan.generation.features) if plan.budgets else ()
    return list(dict.fromkeys(name for name in names if name is not None))


def _evaluator_layouts(plan: Plan) -> dict[str, Layout]:
    """Return the layouts of evaluators; one that is neither known nor on this machine is left out."""
    layouts = {}
    for name in _evaluators(plan):
        try:
            layouts[name] = evaluator_layout(name, find_evaluator)
        except NotFetchedError:
            continue
    return layouts


def _describe_plan(plan: Plan) -> list[str]:
    generation, trains = plan.generation, plan.trainings
    tokens = sum(config.steps * config.batch_size for config in trains) * generation.length
    lines = [f"{plan.title} ({plan.recipe}), from {plan.base} on {plan.data}"]
    if plan.pretrain is not None:
        lines.append(f"  the base is trained first: {plan.pretrain.init}, {_describe_steps(plan.pretrain)}")
    lines += [f"  {name}: {arm.label}, {_describe_arm(arm)}" for name, arm in plan.arms.items()]
    lines += [f"  ablation {name}: {arm.label}, {_describe_arm(arm)}" for name, arm in plan.ablations.items()]
    lines.append(f"seeds {', '.join(map(str, plan.seeds))}: {len(trains)} training runs, {tokens:,} tokens in all")
    if plan.budgets:
        lines.append(
            f"{generation.samples:,} samples at each of {', '.join(map(str, plan.budgets))} denoising steps, "
            f"{_samples(plan):,} in all; evaluator {generation.evaluator or 'none'}, MAUVE features "
            f"{generation.features or 'none'}"
        )
    return lines


def _samples(plan: Plan) -> int:
    return len(plan.arms) * len(plan.seeds) * len(plan.budgets) * plan.generation.samples


def _describe_steps(config: TrainConfig) -> str:
    return f"{config.steps:,} steps of {config.batch_size} sequences"


def _describe_arm(arm: Arm) -> str:
    if arm.train is not None:
        return _describe_steps(arm.train)
    return "not trained" if arm.tune is None else f"not trained, fitted to {arm.tune.rows:,} rows"


def _describe_costs(plan: Plan, card: str | None) -> list[str]:
    """Describe time, memory and disk space, or say why they cannot be estimated."""
    try:
        costs = find_costs(plan, card)
    except NotFetchedError as error:
        return [f"time, memory and disk: not estimated, since the layout of {error} is not known on this machine"]
    kinds = {kind: seconds for kind, seconds in costs.by_kind().items() if seconds >= 0.5}
    inside = ", ".join(f"{kind} {format_duration(seconds)}" for kind, seconds in kinds.items())
    unknown = [name for name in _evaluators(plan) if name not in costs.evaluators]
    left_out = f"; without {' and '.join(unknown)}, whose layout is not known" if unknown else ""
    return [
        f"time: {describe_time(sum(kinds.values()), costs.machine, world_size())}: {inside}{left_out}",
        describe_memory(_memory(costs), costs.machine),
        describe_disk(_disk(costs)),
    ]


def _memory(costs: Costs) -> dict[str, memory.Memory]:
    """Return what each kind of stage needs in one process."""
    plan, machine, generation = costs.plan, costs.machine, costs.plan.generation
    world, parts = world_size(), {}
    runs = [training_memory(config, costs.base, generation.length, machine, world) for config in plan.trainings]
    if runs:
        parts["training"] = max(runs, key=lambda run: run.total)
    if plan.budgets:
        parts["sampling"] = memory.sampling(
            costs.base,
            rows=generation.batch_size,
            length=generation.length,
            precision=machine.precision(generation.precision),
            device=machine.device,
            top_p=generation.top_p,
        )
    if costs.evaluators:
        layout = max(costs.evaluators.values(), key=lambda layout: layout.parameters)
        parts["scoring"] = memory.scoring(
            layout,
            tokens=generation.evaluator_batch or BATCH[machine.device],
            precision=machine.precision(generation.evaluator_precision),
            chunk=CHUNK[machine.device],
        )
    return parts


def _disk(costs: Costs) -> dict[str, float]:
    """Return the bytes of what the experiment writes and fetches."""
    plan, samples = costs.plan, _samples(costs.plan)
    tuned = sum(arm.tune is not None for arm in plan.arms.values())
    kept = sum(config.keep * config.checkpoint_bytes for config in plan.trainings)
    features = costs.evaluators.get(plan.generation.features or "")
    result = RESULT + (0 if features is None else 4 * features.width)
    return {
        "checkpoints": float(costs.base.parameters * (kept + 4 * tuned)),
        "samples": float(samples * plan.generation.length * SAMPLE),
        "cache of scores": float(samples * result) if costs.evaluators else 0.0,
        **data_parts(plan.data, plan.prepare),
        **download_parts({plan.base: costs.base, **costs.evaluators}),
    }
