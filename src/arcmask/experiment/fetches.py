"""What a plan would fetch before it starts: text, tokenizer, base and evaluators that are not on this machine."""

from functools import partial

from arcmask.checkpoint import find_checkpoint
from arcmask.data.job import parts_to_fetch
from arcmask.downloads import to_fetch
from arcmask.evaluation.evaluator import find_evaluator
from arcmask.settings.experiment import Plan


def describe_fetches(plan: Plan) -> str:
    """List what would be fetched, and how large it is. Nothing is fetched."""
    missing = [] if plan.prepare is None else parts_to_fetch(plan.prepare)
    names = (plan.generation.evaluator, plan.generation.features) if plan.budgets else ()
    finders = [partial(find_evaluator, name) for name in names if name is not None]
    bases = [] if plan.pretrain is not None else [partial(find_checkpoint, plan.base)]
    missing += to_fetch(*bases, *finders)
    return f"to fetch: {', '.join(dict.fromkeys(missing)) or 'nothing'}"
