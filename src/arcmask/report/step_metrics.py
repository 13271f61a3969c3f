"""Read the metrics of a training run at one step, for the tables."""

import math

from arcmask.report.folder import Experiment, Training


def window(step: int) -> int:
    """Return the number of steps over which the tables average: a tenth of the steps so far, between 10 and 100."""
    return min(step, max(10, min(100, step // 10)))


def read_step(experiment: Experiment) -> int | None:
    """Return the step that the tables show: the plan's, or the last step that every run has finished."""
    planned = experiment.plan.get("read_at")
    runs = experiment.trainings.items()
    done = [training.done for (arm, _), training in runs if training.done and arm in experiment.arms]
    return planned or (min(done) if done else None)


def at_step(training: Training, step: int) -> dict[str, float]:
    """Return means over the window before a step, and the last validation; empty if the run did not reach it.

    `epoch_nll` and `epoch_perplexity` are of the mean since the start of the epoch, which the public code logs.
    """
    if training.done < step:
        return {}
    metrics: dict[str, float] = {}
    recent = [record for record in training.records if step - window(step) < record["step"] <= step]
    for key in ("nll", "weight", "angle", "euclidean_angle"):
        values = [float(record[key]) for record in recent if record.get(key) is not None]
        if values:
            mean = sum(values) / len(values)
            metrics[key] = math.degrees(mean) if key.endswith("angle") else mean
    if (since := _since_epoch(training, step)) is not None:
        metrics["epoch_nll"] = since
    for prefix in [prefix for prefix in ("", "epoch_") if f"{prefix}nll" in metrics]:
        metrics[f"{prefix}perplexity"] = math.exp(min(metrics[f"{prefix}nll"], 700.0))
    for record in training.records:
        if record["step"] <= step:
            validation = {key: record[key] for key in record if key.startswith("validation_perplexity")}
            metrics |= {key: float(value) for key, value in validation.items() if value is not None}
    if training.settings.get("operator") == "none":
        metrics["weight"] = 0.0
    return metrics


def _since_epoch(training: Training, step: int) -> float | None:
    """Return the mean NLL from the start of a step's epoch to the step; every step has equally many positions.

    Runs of earlier versions do not record the epoch, and are taken as one.
    """
    records = [record for record in training.records if record["step"] <= step and record.get("nll") is not None]
    epochs = [record.get("epoch", 0) for record in records]
    values = [float(record["nll"]) for record, epoch in zip(records, epochs, strict=True) if epoch == epochs[-1]]
    return sum(values) / len(values) if values else None
