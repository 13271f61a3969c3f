"""Take the pictures of the explorer: `python docs/figures/explorer.py [CHECKPOINT] [--option value …]`.

Options are those of `arcmask explore`. Needs chromium, chromedriver and selenium; the page uses the fonts Inter and
JetBrains Mono where the machine has them.
"""

import base64
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
# Go to the middle of the band. Pin a position that is masked in all arms, has a large weight and is undecided.
MOMENT = """
goTo(Math.round(0.55 * STEPS));
const tells = (row) => row.weight * (1 - row.candidates[0].prob);
const shared = (row) => ARMS.every((arm) => arm.rows[state.step].has(row.position));
const blanks = [...ARMS[0].rows[state.step].values()].filter(shared).sort((a, b) => tells(b) - tells(a));
if (blanks.length) select(blanks[0].position, true);
return document.querySelector(arguments[0]).getBoundingClientRect().bottom + scrollY + 14;
"""
# Name, width in CSS pixels, device pixels per CSS pixel, the last visible element, whether the theme is dark.
PICTURES = (
    ("explorer", 1280, 1, "#arms", False),
    ("explorer-dark", 1280, 1, "#plots", True),
    ("explorer-phone", 375, 1.5, "#arms", False),
    ("explorer-phone-dark", 375, 1.5, "#arms", True),
)


def open_browser(profile: str) -> webdriver.Chrome:
    """Start Chromium without a window."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def take(browser: webdriver.Chrome, page: Path, file: Path, width: int, scale: float, last: str, dark: bool) -> None:
    """Take one picture of the page, with a position selected in the middle of the band."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    still = {"name": "prefers-reduced-motion", "value": "reduce"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, still]})
    metrics = {"width": width, "height": 900, "deviceScaleFactor": scale, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())
    clip = {"x": 0, "y": 0, "width": width, "height": browser.execute_script(MOMENT, last), "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB").save(file, optimize=True)


def main(arguments: list[str]) -> None:
    """Write the pictures beside this file."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Path(folder) / "page.html"
        command = [sys.executable, "-m", "arcmask", "explore", *(arguments or ["sotu-tiny"])]
        subprocess.run([*command, "--out", str(page)], check=True)
        browser = open_browser(f"{folder}/profile")
        try:
            for name, *shape in PICTURES:
                take(browser, page, Path(__file__).with_name(f"{name}.png"), *shape)
        finally:
            browser.quit()


if __name__ == "__main__":
    main(sys.argv[1:])
