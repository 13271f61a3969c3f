"""The page in a real browser: no errors, no requests, nothing wider than a telephone, samples that can be chosen."""

import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium")
# Opens the page in a frame of a telephone's width, looks at it, changes the samples that are shown, and looks again.
LOOK = """<!doctype html><iframe src="{page}" style="width: 375px; height: 700px"></iframe><pre></pre><script>
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {{
  const view = frame.contentWindow, inside = frame.contentDocument;
  const panels = () => [...inside.querySelectorAll(".panel")].filter((panel) => !panel.hidden);
  const named = () => panels().map((panel) => [panel.dataset.budget, panel.dataset.seed]);
  const before = named();
  for (const [key, value] of [["budget", "64"], ["seed", "3"]]) {{
    const select = inside.querySelector(`select[data-key=${{key}}]`);
    select.value = value;
    select.dispatchEvent(new view.Event("change"));
  }}
  const overflow = inside.scrollingElement.scrollWidth - inside.scrollingElement.clientWidth;
  const loads = view.performance.getEntriesByType("resource").map((entry) => entry.name);
  const state = {{ before, after: named(), overflow, loads: loads.filter((name) => !name.startsWith("data:")) }};
  document.querySelector("pre").textContent = JSON.stringify({{ ...state, title: inside.title }});
}});
</script>"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_page_works_in_chromium_without_errors_or_network(page, tmp_path):
    look = tmp_path / "look.html"
    look.write_text(LOOK.format(page=page.as_uri()))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--enable-logging=stderr"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command = [CHROMIUM, *flags, "--virtual-time-budget=5000", "--dump-dom", look.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "CONSOLE" not in result.stderr
    state = json.loads(re.search(r"<pre>(.*?)</pre>", result.stdout, flags=re.DOTALL)[1])
    assert state == {
        "before": [["16", "1"]],
        "after": [["64", "3"]],
        "overflow": 0,
        "loads": [],
        "title": "Made-up numbers",
    }
