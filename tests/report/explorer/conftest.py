"""A small character model with feedback, its traces, and one browser for all tests."""

import pytest
import torch
from models import small_mdlm
from pages import CONFIG, open_browser, screen, write

from arcmask.data import open_tokenizer
from arcmask.feedback import Confidence, SoftMask
from arcmask.sampling.side_by_side import trace_arms


@pytest.fixture(scope="session")
def browser():
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def model():
    """Its weights vary, and its texts of different arms differ."""
    denoiser = small_mdlm(vocab_size=28, model_length=64)
    with torch.no_grad():
        denoiser.table[:] *= 3
    denoiser.feedback = SoftMask(confidence=Confidence(scale=0.8, centre=-2.5, steepness=2.0))
    denoiser.tokenizer = open_tokenizer("text8")
    return denoiser


@pytest.fixture(scope="session")
def traces(model):
    return trace_arms(CONFIG, lambda _: model)


@pytest.fixture(scope="session")
def address(traces, tmp_path_factory):
    return write(tmp_path_factory.mktemp("page"), CONFIG, traces)


@pytest.fixture
def page(browser, address):
    """The page, freshly opened at a desk's width; whatever it wrote to the console is an error."""
    browser.get_log("browser")
    browser.get_log("performance")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    screen(browser, 1280)
    browser.get(address)
    yield browser
    assert browser.get_log("browser") == []
