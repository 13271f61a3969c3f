"""Build the explorer's page from traces: one HTML file that needs no server, no network and no other file.

The scripts read the traces in the layout of `Trace.to_json`, with renumbered tokens. Text from a model enters the page
as JSON that cannot begin a tag, and the scripts only show it as text. The content security policy allows the page's own
script and style by their hashes, and nothing else.
"""

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from arcmask.errors import ArcmaskError
from arcmask.files import write_whole
from arcmask.run_folder import check_output
from arcmask.sampling.side_by_side import ArmTrace, ArmTraces
from arcmask.settings.explore import ExploreConfig

_SCRIPTS = ("model.js", "text.js", "inspector.js", "plots.js", "main.js")
_MASKED = -1  # the number of the mask


def write_page(config: ExploreConfig, traces: ArmTraces, command: str | None = None) -> Path:
    """Write the page to `config.out`, and return that path. `command` is what to run for the same page."""
    out = Path(config.out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, build_page(config, traces, command).encode())
    except OSError as error:
        raise ArcmaskError(f"{out} could not be written: {error.strerror}") from error
    return out


def check_page(config: ExploreConfig, command: str | None = None) -> str | None:
    """Raise unless `config.out` may be written. Return a sentence about the page that is replaced, if there is one."""
    settings = {"command": command or config.command()}
    return check_output(Path(config.out), settings, _stored_command, overwrite=config.overwrite)


def _stored_command(page: Path) -> dict[str, str] | None:
    """Return the command that wrote a page; None if it is not a page of the explorer."""
    # Quotes inside of strings are escaped, so that the pattern matches the key alone.
    match = re.search(r'"command":("(?:[^"\\]|\\.)*")', page.read_text(encoding="utf-8", errors="replace"))
    return None if match is None else {"command": json.loads(match[1])}


def build_page(config: ExploreConfig, traces: ArmTraces, command: str | None = None) -> str:
    """Return the HTML of the page."""
    script = "\n".join(_read(name) for name in _SCRIPTS)
    style = _read("page.css")
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'"
    return Template(_read("page.html")).substitute(
        policy=policy,
        title=html.escape(f"{config.sample.prompt or 'A sample'} · arcmask explorer"),
        style=style,
        script=script,
        # Only these characters could end the element or begin another. In JSON they occur in strings alone.
        data=json.dumps(page_data(config, traces, command), separators=(",", ":"), ensure_ascii=False)
        .replace("<", "\\u003c")
        .replace(">", "\\u003e"),
    )


def page_data(config: ExploreConfig, traces: ArmTraces, command: str | None = None) -> dict[str, Any]:
    """Return the data of the scripts. Tokens are indices of `tokens`, which holds text or incomplete UTF-8 bytes."""
    ids = sorted(traces.pieces)
    number = {token: index for index, token in enumerate(ids)} | {traces.mask_id: _MASKED}
    return {
        "tokens": [_text_or_bytes(traces.pieces[token]) for token in ids],
        "steps": traces.steps,
        "band": list(traces.band),
        "facts": _facts(config, traces),
        "command": command or config.command(),
        "arms": [_arm(arm, number) for arm in traces.arms],
    }


def _arm(arm: ArmTrace, number: dict[int, int]) -> dict[str, Any]:
    trace = arm.trace
    steps = [
        {
            "time": step["time"],
            "revealed": [[position, number[token]] for position, token in step["revealed"]],
            "masked": [[*row[:4], [number[token] for token in row[4]], *row[5:]] for row in step["masked"]],
        }
        for step in trace["steps"]
    ]
    return {
        "operator": arm.operator.name,
        "label": arm.operator.label,
        "about": arm.operator.about,
        "colour": arm.operator.colour,
        "keeps_norm": arm.operator.keeps_norm,
        "has_feedback": arm.confidence is not None,
        "calls": arm.calls,
        "start": [number[token] for token in trace["start"]],
        "tokens": [number[token] for token in trace["tokens"]],
        "filled": trace["filled"],
        "steps": steps,
    }


def _facts(config: ExploreConfig, traces: ArmTraces) -> list[tuple[str, str]]:
    """Return the settings of the run as text."""
    sample = config.sample
    calls = [f"{arm.operator.name} {arm.calls}" for arm in traces.arms]
    confidence = sorted({arm.confidence for arm in traces.arms if arm.confidence is not None})
    facts = [
        ("checkpoint", sample.checkpoint),
        ("prompt", "none" if sample.prompt is None else sample.prompt),
        ("seed", str(sample.seed)),
        ("step rule", sample.rule),
        ("budget", f"{traces.steps} steps for {traces.length} positions"),
        ("denoiser calls", f"{', '.join(calls)} (with a trace, all masked positions are predicted at every step)"),
        ("feedback band", f"times {traces.band[0]:g} to {traces.band[1]:g}"),
    ]
    facts += [("confidence", text) for text in confidence]
    filters = [("temperature", sample.temperature, 1.0), ("top p", sample.top_p, 1.0), ("top k", sample.top_k, None)]
    return facts + [(name, str(value)) for name, value, default in filters if value != default]


def _text_or_bytes(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return (files("arcmask.report.explorer") / name).read_text(encoding="utf-8")
