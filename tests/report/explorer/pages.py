"""Pages for tests: of small models, and of traces written by hand; and the browser that opens them."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arcmask.feedback import OPERATORS
from arcmask.report.explorer import ExploreConfig, build_page
from arcmask.sampling.side_by_side import ArmTrace, ArmTraces
from arcmask.settings.sample import SampleConfig

SAMPLE = SampleConfig(checkpoint="runs/small", prompt="we hold these ", steps=24, length=48, seed=1)
CONFIG = ExploreConfig(sample=SAMPLE)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def open_browser() -> Iterator:
    """Chromium without a window, its console and its requests logged; a test that needs it is skipped without."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no browser: the explorer's page is tested where chromium and chromedriver are installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            yield browser
        finally:
            browser.quit()


def requests(browser) -> list[str]:
    """The addresses that were asked for since the last look, by Chromium's own account, but for its own pages."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith(("chrome:", "data:"))]


def write(folder: Path, config: ExploreConfig, traces: ArmTraces) -> str:
    """The address of the page."""
    file = folder / "page.html"
    file.write_text(build_page(config, traces), encoding="utf-8")
    return file.as_uri()


def by_hand(pieces: list[bytes], reveals: list[list[tuple[int, int]]], start: list[int]) -> ArmTraces:
    """One arm that reveals these (position, token) pairs step by step; -1 in `start` is the mask."""
    tokens, steps = list(start), []
    for number, revealed in enumerate(reveals):
        candidates = [0, 1 % len(pieces)]
        masked = [[i, 0.0, None, 0.7, candidates, [0.6, 0.4], 0.9, None] for i, token in enumerate(tokens) if token < 0]
        steps.append({"time": 1 - number / len(reveals), "called": True, "revealed": revealed, "masked": masked})
        for position, token in revealed:
            tokens[position] = token
    text = b"".join(pieces[token] for token in tokens).decode(errors="replace")
    trace = {"tokens": tokens, "start": start, "filled": [], "steps": steps}
    arm = ArmTrace(operator=OPERATORS["none"], text=text, calls=len(reveals), trace=trace, confidence=None)
    shared = {"mask_id": -1, "band": (0.2, 0.8), "steps": len(reveals), "length": len(start)}
    return ArmTraces(arms=[arm], pieces=dict(enumerate(pieces)), **shared)


def explore(feedback: tuple[str, ...] = ("none",), **settings) -> ExploreConfig:
    """The settings of a page of the checkpoint x."""
    return ExploreConfig(sample=SampleConfig(**{"checkpoint": "x"} | settings), feedback=feedback)


def screen(browser, width: int, dark: bool = False) -> None:
    """A screen of that width, in light or dark."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
