"""`arcmask evaluate`: score samples, and a checkpoint's likelihood."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from arcmask.checkpoint import load_for_use
from arcmask.evaluation.sets import check_evaluation, describe_evaluation, evaluate
from arcmask.evaluation.statistics import half_width
from arcmask.files import json_bytes, write_whole
from arcmask.progress import announce
from arcmask.ranks import rank
from arcmask.settings.evaluate import EvaluateConfig


def run(config: EvaluateConfig) -> None:
    """Score what the settings name, print tables and write the file."""
    notice = check_evaluation(config)
    if notice and rank() == 0:
        announce(notice)
    result = evaluate(config, load_for_use)
    if result is None:
        return
    _print(result)
    if config.out is not None:
        write_whole(Path(config.out), json_bytes(result))
        print(config.out)


def dry_run(config: EvaluateConfig) -> None:
    """Print what would be scored."""
    print(describe_evaluation(config, load_for_use))


def most_processes(config: EvaluateConfig, most: int) -> tuple[int, str]:
    """Return how many of `most` processes have something to score, and why it is not more."""
    return (most, "") if config.samples else (1, "a likelihood is computed by one process")


def _print(result: dict[str, Any]) -> None:
    for source, one in result["sets"].items():
        table = _table("score", "value", "95 % interval", "depends on")
        for name, score in one["scores"].items():
            interval = "" if score["interval"] is None else " to ".join(_short(edge) for edge in score["interval"])
            table.add_row(name, _short(score["value"]), interval, _depends(score))
        _show(f"{source}: {one['count']} sample{'' if one['count'] == 1 else 's'}", table)
    if len(result["sets"]) > 1:
        table = _table("score", "mean", "95 % interval", "standard deviation")
        for name, summary in result["over_sets"].items():
            mean, half, std = summary["mean"], summary["half_width"], summary["std"]
            interval = "" if half is None else f"{_short(mean - half)} to {_short(mean + half)}"
            table.add_row(name, _short(mean), interval, _short(std))
        _show(f"over the {len(result['sets'])} sets, taken as seeds of one arm", table)
    if "likelihood" in result:
        table = _table("likelihood", "perplexity", "nats per token", "rows")
        for kind in [kind for kind in ("plain", "two_pass") if kind in result["likelihood"]]:
            bound = result["likelihood"][kind]
            error, count = bound["standard_error"], bound["rows"]
            interval = "" if error is None else f" ± {_short(half_width(error, count))}"
            rows = f"{count} rows, {bound['tokens']} tokens; {_short(bound['bits_per_byte'])} bits per byte"
            table.add_row(kind, _short(bound["perplexity"]), f"{bound['nats']:.4f}{interval}", rows)
        title = f"{result['likelihood']['checkpoint']} on {bound['data']} ({bound['split']})"
        _show(title, table, "± is a 95 % confidence interval (Student's t over rows)")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        numbers = index in (1, 2)
        table.add_column(name, justify="right" if numbers else "left", no_wrap=index < 3, overflow="fold")
    return table


def _show(title: str, table: Table, note: str = "") -> None:
    console = Console(highlight=False, markup=False)
    console.print(title, soft_wrap=True)
    console.print(table)
    console.print(f"{note}\n" if note else "", soft_wrap=True)


def _short(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _depends(score: dict[str, Any]) -> str:
    """Return the settings of a score that fit in a table; the file has all of them."""
    if "evaluator" in score:
        return f"{score['evaluator']}, {score['tokens']} tokens; {_short(score['bits_per_byte'])} bits per byte"
    if "features" in score:
        return f"{score['features']}, {score['references']} references, {len(score['kmeans_seeds'])} seeds"
    if "reference" in score:
        return f"{score['words']} words against {score['reference']}"
    if "data" in score:
        return f"edits, {score['rows']} training rows of {score['data']}"
    return str(score.get("tokenizer", score.get("of", "")))
