"""The page in a real browser, opened as a file: what it shows, how it is moved, and that it asks for nothing."""

import re

import pytest
from models import small_mdlm
from pages import CONFIG, SAMPLE, by_hand, explore, requests, screen, write

from arcmask.data import open_tokenizer
from arcmask.feedback import Confidence, SoftMask
from arcmask.sampling import sample
from arcmask.sampling.side_by_side import trace_arms

pytest.importorskip("selenium")
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

NONE = "\u2013"
ARMS = list(CONFIG.feedback)
HOSTILE = "</script><script>document.title = 'run'</script><img src=x onerror=\"document.title='run'\">"


def find(page, selector: str):
    return page.find_element(By.CSS_SELECTOR, selector)


def text_of(page, arm: str) -> str:
    return page.execute_script("return document.querySelector(arguments[0]).textContent", f'[data-arm="{arm}"] .text')


def step(page) -> int:
    return int(find(page, "#step").text)


def slide(page, to: int) -> None:
    change = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    page.execute_script(change, find(page, "#slider"), to)


def position(page, arm: str, index: int):
    return find(page, f'.arm[data-arm="{arm}"] .pos[data-i="{index}"]')


def numbers(page, arm: str, name: str) -> list[float]:
    """What the arm's inspector shows under a name, without its unit."""
    script = "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)"
    texts = page.execute_script(script, f'.arm[data-arm="{arm}"] [data-name="{name}"]')
    return [float(re.match(r"[\d.]+", text)[0]) for text in texts]


def press(page, *keys: str) -> None:
    ActionChains(page).send_keys(*keys).perform()


def test_nothing_is_asked_for_but_the_page_itself(page, address):
    slide(page, 24)
    slide(page, 3)
    assert requests(page) == [address]


def test_the_watch_sees_a_request_where_there_is_one(browser, tmp_path):
    (tmp_path / "page.html").write_text("<img src='http://127.0.0.1:9/x.png'>")
    browser.get((tmp_path / "page.html").as_uri())
    assert "http://127.0.0.1:9/x.png" in requests(browser)
    browser.get("about:blank")
    browser.get_log("browser")


def test_the_final_text_is_the_samplers(page, model, traces):
    slide(page, SAMPLE.steps)
    for arm in traces.arms:
        settings = {"prompt": SAMPLE.prompt, "length": SAMPLE.length, "seed": SAMPLE.seed, "steps": SAMPLE.steps}
        name = arm.operator.name
        assert text_of(page, name) == sample(model, feedback=name, **settings).texts[0] == arm.text
    assert find(page, "#band-now").text == "done"


def test_playing_runs_to_the_end_and_stops_there(page, tmp_path):
    config = explore(steps=6)
    page.get(write(tmp_path, config, by_hand([b"a", b"b"], [[(i, i % 2)] for i in range(6)], [-1] * 6)))
    find(page, "#play").click()
    assert find(page, "#play").text == "Pause"
    WebDriverWait(page, 20).until(lambda _: step(page) == 6)
    assert text_of(page, "none") == "ababab"
    assert find(page, "#play").text == "Play"
    press(page, Keys.HOME, " ")
    WebDriverWait(page, 20).until(lambda _: step(page) >= 2)
    press(page, " ")
    assert find(page, "#play").text == "Play"
    assert 2 <= step(page) <= 5


def test_buttons_keys_slider_and_plots_move_the_step(page):
    find(page, "#forward").click()
    find(page, "#forward").click()
    assert step(page) == 2
    press(page, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert step(page) == 3
    find(page, "#back").click()
    assert step(page) == 2
    press(page, Keys.END)
    assert step(page) == SAMPLE.steps
    press(page, Keys.ARROW_RIGHT)
    assert step(page) == SAMPLE.steps
    find(page, "#first").click()
    assert step(page) == 0
    find(page, "#slider").send_keys(Keys.ARROW_RIGHT)
    assert step(page) == 1
    plot = find(page, ".plot svg")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    ActionChains(page).move_to_element(plot).click().perform()
    assert 9 <= step(page) <= 13  # the middle of the plot, which begins behind its labels
    find(page, "#last").click()
    assert step(page) == SAMPLE.steps


@pytest.mark.parametrize("arm", ARMS)
def test_blanks_and_tokens_are_the_traces_at_every_step(page, traces, arm):
    trace = traces.arms[ARMS.index(arm)].trace
    for number, traced in enumerate(trace["steps"]):
        slide(page, number)
        script = "return [...document.querySelectorAll(arguments[0])].map((node) => Number(node.dataset.i))"
        blanks = page.execute_script(script, f'.arm[data-arm="{arm}"] .pos.masked')
        assert blanks == [row[0] for row in traced["masked"]]
        fresh = page.execute_script(script, f'.arm[data-arm="{arm}"] .pos.fresh')
        before = trace["steps"][number - 1]["revealed"] if number else []
        assert fresh == sorted(index for index, _ in before)
    prompt = page.execute_script(script, f'.arm[data-arm="{arm}"] .pos.given')
    assert prompt == list(range(len("we hold these ")))


def test_the_numbers_are_the_traces(page, model):
    """Every number of a position, at picked steps and positions, against the trace's own tensors."""
    compared = 0
    for arm in ARMS:
        settings = {"prompt": SAMPLE.prompt, "length": SAMPLE.length, "seed": SAMPLE.seed, "steps": SAMPLE.steps}
        trace = sample(model, feedback=arm, trace=True, **settings).traces[0]
        for number in (0, 8, 14, 21):
            slide(page, number)
            traced = trace.steps[number]
            for index in (traced.tokens[0] == model.mask_id).nonzero().flatten().tolist()[::5]:
                page.execute_script("arguments[0].focus()", position(page, arm, index))
                shares = (traced.probs[0, index] * traced.share[0, index]).tolist()
                shares.append(1 - float(traced.share[0, index]))
                assert numbers(page, arm, "prob") == pytest.approx([100 * share for share in shares], abs=0.16)
                assert numbers(page, arm, "entropy") == pytest.approx([float(traced.entropy[0, index])], abs=0.006)
                fed = traced.measures[0, index].tolist()
                if fed[0] > 0:
                    degrees = 180 / 3.14159265
                    assert numbers(page, arm, "weight")[:1] == pytest.approx([fed[0]], abs=6e-4)
                    assert numbers(page, arm, "angle")[:1] == pytest.approx([fed[1] * degrees], abs=0.06)
                    assert numbers(page, arm, "turned") == pytest.approx([fed[4] * degrees], abs=0.06)
                    assert numbers(page, arm, "norm") == pytest.approx([fed[5]], abs=6e-4)
                    inside = find(page, f'.arm[data-arm="{arm}"] [data-name="inside"]').text
                    if arm == "linear":
                        side = "inside" if fed[5] < 1 else "outside"
                        assert re.fullmatch(rf"([\d.]+) % {side} the sphere\.|On the sphere\.", inside)
                    else:
                        assert inside == "On the sphere."
                    compared += 1
                else:
                    assert numbers(page, arm, "weight") == []
    assert compared > 10


def test_the_plots_read_the_means_over_blanks(page, traces):
    for number in (0, 10, 20, SAMPLE.steps):
        slide(page, number)
        for arm, traced in zip(ARMS, traces.arms, strict=True):
            rows = traced.trace["steps"][number]["masked"] if number < SAMPLE.steps else []
            shown = {
                name: find(page, f'.reading[data-arm="{arm}"][data-name="{name}"]').text
                for name in ("masked", "weight", "entropy", "angle")
            }
            assert float(shown["masked"].split()[0]) == pytest.approx(100 * len(rows) / SAMPLE.length, abs=0.06)
            for name, column in (("weight", 1), ("entropy", 3)):
                if rows:
                    mean = sum(row[column] for row in rows) / len(rows)
                    assert float(shown[name]) == pytest.approx(mean, abs=0.006)
                else:
                    assert shown[name] == NONE
            angles = [row[2] for row in rows if row[2] is not None]
            mean = f"{sum(angles) / len(angles) * 180 / 3.14159265:.1f}°" if angles else NONE
            assert shown["angle"] == mean


def test_pointing_shows_a_position_and_a_click_holds_it(page):
    slide(page, 8)
    ActionChains(page).move_to_element(position(page, "linear", 30)).perform()
    panels = [node.text for node in page.find_elements(By.CSS_SELECTOR, ".where-at")]
    assert panels == ["Position 31"] * 3
    position(page, "linear", 30).click()
    ActionChains(page).move_to_element(position(page, "none", 40)).perform()
    assert find(page, ".where-at").text.split()[:3] == ["Position", "31", "pinned;"]
    press(page, Keys.ESCAPE)
    ActionChains(page).move_to_element(position(page, "none", 41)).perform()
    assert find(page, ".where-at").text == "Position 42"
    ActionChains(page).move_to_element(position(page, "none", 2)).perform()
    assert "Part of the prompt" in find(page, ".fate").text


def test_the_keyboard_alone_reaches_every_position(page):
    page.execute_script("document.getElementById('views').lastChild.focus()")
    press(page, Keys.TAB, Keys.TAB)  # past the link to the first difference, into the first text
    focused = "return document.activeElement.dataset.i"
    first = len("we hold these ")
    assert page.execute_script(focused) == str(first)
    press(page, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
    assert page.execute_script(focused) == str(first + 1)
    assert find(page, ".where-at").text == f"Position {first + 2}"
    press(page, Keys.ARROW_RIGHT)  # time goes on, the position stays
    assert (step(page), page.execute_script(focused)) == (1, str(first + 1))
    press(page, Keys.ENTER)
    assert "pinned" in find(page, ".where-at").text


def test_a_revealed_position_says_when_and_what(page, traces):
    trace = traces.arms[0].trace
    busy = [number for number, traced in enumerate(trace["steps"]) if traced["revealed"]]
    for number in (busy[0], busy[len(busy) // 2], busy[-1]):
        index, token = trace["steps"][number]["revealed"][0]
        slide(page, SAMPLE.steps)
        ActionChains(page).move_to_element(position(page, "spherical", index)).perform()
        fate = find(page, '.arm[data-arm="spherical"] .fate').text
        name = traces.pieces[token].decode().replace(" ", "␣")
        assert fate.startswith(f"Revealed as {name} in step {number + 1}, ")
        slide(page, number)
        fate = find(page, '.arm[data-arm="spherical"] .fate').text
        assert fate == f"Masked. Revealed as {name} in step {number + 1}."


def test_the_first_difference_is_marked_in_every_arm(page, traces):
    finals = [arm.trace["tokens"] for arm in traces.arms]
    expected = next(i for i, tokens in enumerate(zip(*finals, strict=True)) if len(set(tokens)) > 1)
    slide(page, SAMPLE.steps)
    marked = [node.get_attribute("data-i") for node in page.find_elements(By.CSS_SELECTOR, ".pos.differs")]
    assert marked == [str(expected)] * 3
    slide(page, 0)
    assert page.find_elements(By.CSS_SELECTOR, ".pos.differs") == []
    find(page, "#difference").click()
    at = step(page)
    assert len(page.find_elements(By.CSS_SELECTOR, ".pos.differs")) == 3
    slide(page, at - 1)
    assert page.find_elements(By.CSS_SELECTOR, ".pos.differs") == []


def test_arms_can_be_seen_one_at_a_time(page):
    def shown() -> list[str]:
        arms = page.find_elements(By.CSS_SELECTOR, ".arm")
        return [arm.get_attribute("data-arm") for arm in arms if arm.is_displayed()]

    assert shown() == ARMS
    find(page, '[data-view="linear"]').click()
    assert shown() == ["linear"]
    find(page, '[data-view=""]').click()
    assert shown() == ARMS


def test_on_a_phone_nothing_is_wider_than_the_screen_and_a_tap_shows_a_position(page, address):
    screen(page, 375)
    page.get(address)
    slide(page, 12)
    for _ in range(2):
        assert page.execute_script("return document.documentElement.scrollWidth") == 375
        assert len([arm for arm in page.find_elements(By.CSS_SELECTOR, ".arm") if arm.is_displayed()]) in (1, 3)
        find(page, '[data-view=""]').click()
    find(page, '[data-view="spherical"]').click()
    span = position(page, "spherical", 33)
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", span)
    box = page.execute_script("return arguments[0].getBoundingClientRect().toJSON()", span)
    point = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [point]})
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    WebDriverWait(page, 5).until(lambda _: find(page, ".where-at").text.startswith("Position 34"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_can_be_read_in_light_and_in_dark(page, dark):
    screen(page, 1280, dark=dark)
    slide(page, 12)
    # Colours fade for a quarter of a second; their last values are measured.
    WebDriverWait(page, 20).until(lambda _: page.execute_script("return document.getAnimations().length") == 0)
    ground = luminance(page, "body", "background-color")
    assert (ground < 0.05) if dark else (ground > 0.85)
    card = luminance(page, ".arm", "background-color")
    for selector, behind in (
        *(
            (name, ground)
            for name in ("body", ".lede", ".note", "#time", ".legend", "footer", ".facts dt", "#difference")
        ),
        *((name, card) for name in (".arm > header p", ".figure", ".where", ".plot .reading", ".cell")),
        *((f'.arm[data-arm="{arm}"] h3', card) for arm in ARMS),
    ):
        ink = luminance(page, selector, "color")
        contrast = (max(ink, behind) + 0.05) / (min(ink, behind) + 0.05)
        assert contrast >= 4.5, selector


def luminance(page, selector: str, name: str) -> float:
    """The relative luminance of WCAG."""
    script = """
        const colour = getComputedStyle(document.querySelector(arguments[0])).getPropertyValue(arguments[1]);
        const context = document.createElement("canvas").getContext("2d");
        context.fillStyle = colour;
        context.fillRect(0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3)"""
    shares = [value / 255 for value in page.execute_script(script, selector, name)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_a_screen_reader_finds_names_for_all_that_can_be_used(page):
    slide(page, 10)
    script = "return [...document.querySelectorAll('button, input, [role=button], [role=img]')].map((x) => x.id)"
    assert len(page.execute_script(script)) > 3 * SAMPLE.length
    tree = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {"button", "slider", "image", "img", "radio"}
    named = [n for n in tree if n.get("role", {}).get("value") in roles and not n.get("ignored")]
    assert len(named) > 3 * SAMPLE.length
    assert [n for n in named if not n["name"].get("value")] == []
    assert find(page, "#slider").get_attribute("aria-valuetext").startswith("step 10 of 24, ")
    assert find(page, "#announcer").get_attribute("textContent").startswith("step 10 of 24, ")
    blank = find(page, ".arm .pos.masked").get_attribute("aria-label")
    assert re.fullmatch(r"position \d+, masked, top candidate \w+ with [\d.]+ %", blank)


def test_html_from_a_model_is_shown_and_not_run(page, tmp_path):
    pieces = [HOSTILE.encode(), b"<b>bold</b>", b"&lt;&amp;"]
    config = explore(checkpoint=HOSTILE, prompt=HOSTILE, steps=3)
    page.get(write(tmp_path, config, by_hand(pieces, [[(0, 0)], [(1, 1)], [(2, 2)]], [-1, -1, -1])))
    slide(page, 1)
    slide(page, 3)
    assert text_of(page, "none") == HOSTILE + "<b>bold</b>&lt;&amp;"
    assert page.title == f"{HOSTILE} · arcmask explorer"
    assert page.find_elements(By.CSS_SELECTOR, "img, .text b, .facts script") == []


def test_parts_of_a_character_are_bytes_until_neighbours_complete_it(page, tmp_path):
    pieces = [b"\xf0\x9f", b"\x98\x80", b"a", b"\xe2\x80", b"\n"]
    reveals = [[(0, 0)], [(1, 1)], [(2, 3), (3, 2)], [(4, 4)]]
    config = explore(steps=4)
    page.get(write(tmp_path, config, by_hand(pieces, reveals, [-1] * 5)))

    def seen() -> list[str]:
        script = "return [...document.querySelectorAll('.bytes')].map((node) => node.dataset.hex)"
        return page.execute_script(script)

    slide(page, 1)
    assert seen() == ["⟨F0 9F⟩"]
    slide(page, 2)
    assert (seen(), text_of(page, "none").rstrip()) == ([], "😀")
    slide(page, 4)
    assert (seen(), text_of(page, "none")) == (["⟨E2 80⟩"], "😀\ufffda\n")


@pytest.fixture(scope="module")
def gpt2():
    model = small_mdlm(vocab_size=50258, model_length=48)
    model.feedback, model.tokenizer = SoftMask(), open_tokenizer("gpt2")
    return model


def test_multi_byte_text_of_byte_level_tokens_ends_as_the_tokenizer_decodes_it(page, gpt2, tmp_path):
    config = explore(("spherical", "none"), prompt="日本語 “naïve” 😀\n\n", steps=8)
    traces = trace_arms(config, lambda _: gpt2)
    assert any(isinstance(text_or_bytes(piece), bytes) for piece in traces.pieces.values())
    page.get(write(tmp_path, config, traces))
    slide(page, 8)
    for arm in traces.arms:
        assert text_of(page, arm.operator.name) == arm.text
        assert arm.text.startswith(config.sample.prompt)


def text_or_bytes(piece: bytes) -> str | bytes:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return piece


@pytest.mark.parametrize(
    "settings",
    [
        {"prompt": "ab", "length": 2, "steps": 3},  # nothing to fill in
        {"length": 1, "steps": 1},
        {"rule": "remask-loop", "steps": 20, "length": 12},
        {"feedback": ["renormalized", "spherical-euclidean", "none"], "rule": "confidence", "length": 9, "steps": 9},
    ],
    ids=["nothing", "one", "remasking", "operators"],
)
def test_unusual_runs_are_shown_too(page, model, tmp_path, settings):
    config = explore(**{"feedback": CONFIG.feedback} | settings)
    traces = trace_arms(config, lambda _: model)
    page.get(write(tmp_path, config, traces))
    for number in range(traces.steps + 1):
        slide(page, number)
        page.execute_script("for (const node of document.querySelector('.text').children) node.focus()")
    for arm in traces.arms:
        assert text_of(page, arm.operator.name) == arm.text


def test_tiny_weights_are_not_shown_as_zero(page, model, tmp_path, monkeypatch):
    monkeypatch.setattr(model, "feedback", SoftMask(confidence=Confidence(fixed=0.0002)))
    config = explore(feedback=["spherical"], length=12, steps=8)
    page.get(write(tmp_path, config, trace_arms(config, lambda _: model)))
    slide(page, 4)
    assert find(page, "#heaviest").text == "2.0e-4"
    script = "return [...arguments[0].closest('figure').querySelectorAll('.tick')].map((tick) => tick.textContent)"
    reading = find(page, '.reading[data-name="weight"]')
    assert page.execute_script(script, reading)[:3] == ["0", "1e-4", "2e-4"]
    assert float(reading.text) == pytest.approx(2e-4)
