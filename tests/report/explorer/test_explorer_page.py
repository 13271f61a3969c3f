"""The page as a file: what it holds, how large it is, and what cannot get out of its data."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from models import small_mdlm
from pages import CONFIG, by_hand, explore

from arcmask.errors import ArcmaskError
from arcmask.feedback import SoftMask
from arcmask.report.explorer import build_page, write_page
from arcmask.sampling.side_by_side import trace_arms

HOSTILE = "</script><script>document.title = 'run'</script><img src=x onerror=\"document.title='run'\"><!--"


class Elements(HTMLParser):
    """The elements of a page, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names, self.scripts, self.addresses = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.names[-1:] == ["script"]:
            self.scripts[-1] += data


def test_a_page_points_nowhere(traces):
    text = build_page(CONFIG, traces)
    assert Elements(text).addresses == []
    assert set(re.findall(r"https?://[^\"'\s)]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "default-src 'none'" in text


def test_what_a_model_wrote_stays_data():
    traces = by_hand([HOSTILE.encode(), b"${script}"], [[(0, 0)], [(1, 1)]], [-1, -1])
    page = Elements(build_page(explore(checkpoint=HOSTILE, prompt=HOSTILE, steps=2), traces))
    plain = Elements(build_page(explore(prompt="x", steps=2), by_hand([b"a"], [[(0, 0)]], [-1])))
    assert page.names == plain.names
    assert json.loads(page.scripts[0])["tokens"] == [HOSTILE, "${script}"]


def test_the_data_are_the_traces_with_tokens_numbered_anew(traces):
    data = json.loads(Elements(build_page(CONFIG, traces)).scripts[0])
    for shown, arm in zip(data["arms"], traces.arms, strict=True):
        assert "".join(data["tokens"][i] for i in shown["tokens"]) == arm.text
        for step, traced in zip(shown["steps"], arm.trace["steps"], strict=True):
            for row, original in zip(step["masked"], traced["masked"], strict=True):
                ids = [data["tokens"][i].encode() for i in row[4]]
                assert ids == [traces.pieces[token] for token in original[4]]
                assert row[:4] + row[5:] == original[:4] + original[5:]


def test_three_arms_of_64_steps_and_128_positions_are_below_two_megabytes(model):
    long = small_mdlm(vocab_size=28, model_length=128)
    long.feedback, long.tokenizer = SoftMask(), model.tokenizer
    config = explore(CONFIG.feedback)
    traces = trace_arms(config, lambda _: long)
    assert traces.length == 128
    assert len(build_page(config, traces).encode()) < 2_000_000


def test_the_command_says_all_that_is_not_by_default():
    assert CONFIG.command() == (
        "arcmask explore runs/small --length 48 --steps 24 --prompt 'we hold these ' --seed 1 --feedback spherical "
        "linear none"
    )
    other = replace(explore(prompt="-a", rule="confidence"), out="y.html", open=True)
    assert other.command() == (
        "arcmask explore x --steps 64 --prompt=-a --rule confidence --seed 0 --feedback none --out y.html"
    )


def test_a_page_appears_whole_or_not_at_all(traces, tmp_path):
    out = tmp_path / "new" / "page.html"
    assert write_page(replace(CONFIG, out=str(out)), traces) == out
    assert [file.name for file in out.parent.iterdir()] == ["page.html"]
    (tmp_path / "file").touch()
    with pytest.raises(ArcmaskError, match=r"page.html could not be written: File exists"):
        write_page(replace(CONFIG, out=str(tmp_path / "file" / "page.html")), traces)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"feedback": []}, "feedback names no arm"),
        ({"feedback": ["none", "linear", "none"]}, "the arm 'none' is given twice"),
        ({"precision": "half"}, "unknown precision 'half'"),
    ],
)
def test_bad_settings_are_one_sentence(settings, sentence):
    with pytest.raises(ArcmaskError, match=sentence):
        explore(**settings)
