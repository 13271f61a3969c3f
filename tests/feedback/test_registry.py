"""The registry: operators by name, by file and as functions, and checkpoints that name one without importing it."""

import pytest
import torch

from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS, Confidence, SoftMask, find_operator, operator
from arcmask.settings.operators import OPERATOR_NAMES

PLAIN = """
def nearest(mask, candidates, probs, weight):
    return mask + weight[:, None] * (candidates[:, 0] - mask)
"""
DECORATED = f"""
from arcmask.feedback import operator

@operator("my-nearest", label="my nearest", colour="#123456")
{PLAIN.strip()}
"""


@pytest.fixture(autouse=True)
def _registry_is_restored():
    before = dict(OPERATORS)
    yield
    OPERATORS.clear()
    OPERATORS.update(before)


def nearest(mask, candidates, probs, weight):  # noqa: ARG001
    """Move towards the first candidate."""
    return mask + weight[:, None] * (candidates[:, 0] - mask)


def test_every_file_of_the_package_is_an_operator_of_its_name():
    assert tuple(sorted(OPERATORS)) == OPERATOR_NAMES
    assert all(record.name == name and record.is_ours for name, record in OPERATORS.items())


def test_labels_and_colours_are_distinct():
    records = list(OPERATORS.values())
    assert len({record.label for record in records}) == len({record.colour for record in records}) == len(records)


def test_a_name_that_is_taken_is_refused(operator_name):
    with pytest.raises(ArcmaskError, match=f"the operator name '{operator_name}' is taken"):
        operator(operator_name)(nearest)
    operator("mine")(nearest)
    with pytest.raises(ArcmaskError, match="the operator name 'mine' is taken"):
        operator("mine")(lambda *inputs: inputs[0])


def test_a_function_without_a_decorator_works_and_is_labelled_by_its_name():
    soft_mask = SoftMask(nearest, confidence=Confidence(fixed=0.5))
    assert (soft_mask.operator, soft_mask.record.label) == ("nearest", "nearest")
    assert soft_mask.record.about == "Move towards the first candidate."
    assert OPERATORS["nearest"] is soft_mask.record is find_operator(nearest)
    tokens, logits, table = torch.tensor([[0, 3]]), torch.randn(1, 2, 4), torch.randn(4, 8)
    feedback = soft_mask(tokens, logits, table, 3)
    top = logits[0, 1, :3].argmax()
    torch.testing.assert_close(feedback.embeddings[0, 1], (table[3] + table[top]) / 2)


def test_a_function_may_be_defined_again_but_not_replace_an_operator_of_the_package():
    def linear(mask, candidates, probs, weight):  # noqa: ARG001
        return mask

    with pytest.raises(ArcmaskError, match="the operator name 'linear' is taken"):
        SoftMask(linear)
    first = find_operator(nearest)

    def again(mask, candidates, probs, weight):  # noqa: ARG001
        return mask

    again.__name__ = "nearest"
    assert find_operator(again) is not first


@pytest.mark.parametrize(("source", "name"), [(PLAIN, "nearest"), (DECORATED, "my-nearest")])
def test_a_file_gives_its_function_with_or_without_a_decorator(tmp_path, source, name):
    file = tmp_path / "mine.py"
    file.write_text(source)
    record = find_operator(f"{file}:nearest")
    assert (record.name, record.is_ours) == (name, False)
    assert find_operator(f"{file}:nearest") is record
    assert SoftMask(f"{file}:nearest").operator == name


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "there is no file .*mine.py to take the operator f from"),
        ("x = 1", "mine.py has no function 'f'; it has: none"),
        ("def g(): ...", "mine.py has no function 'f'; it has: g"),
        ("1 / 0", r"mine.py cannot be imported \(ZeroDivisionError: division by zero\)"),
    ],
)
def test_a_file_that_does_not_fit_is_an_error(tmp_path, source, message):
    if source is not None:
        (tmp_path / "mine.py").write_text(source)
    with pytest.raises(ArcmaskError, match=message):
        find_operator(f"{tmp_path}/mine.py:f")


def test_settings_hold_the_name_and_a_hash_of_the_source(operator_name):
    assert "operator_sha256" not in SoftMask(operator_name).settings()
    settings = SoftMask(nearest).settings()
    assert (settings["operator"], len(settings["operator_sha256"])) == ("nearest", 64)
    assert SoftMask.from_settings(settings).record is OPERATORS["nearest"]
    with pytest.warns(UserWarning, match="the operator nearest has changed since the checkpoint was trained"):
        SoftMask.from_settings(settings | {"operator_sha256": "0" * 64})


def test_opening_imports_no_file_and_asks_for_the_function(tmp_path):
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')")
    settings = SoftMask(nearest).settings()
    del OPERATORS["nearest"]
    restored = SoftMask.from_settings(settings)
    assert restored.settings() == settings
    with pytest.raises(ArcmaskError, match="operator 'nearest', which is not part of arcmask; pass its function again"):
        restored(torch.tensor([[3]]), torch.randn(1, 1, 4), torch.randn(4, 8), 3)
    name = f"{tmp_path}/mine.py:nearest"
    assert SoftMask.from_settings(settings | {"operator": name}).operator == name
    with pytest.raises(ArcmaskError, match="unknown operator"):
        SoftMask.from_settings(
            {key: settings[key] for key in settings if key != "operator_sha256"} | {"operator": name}
        )


def test_a_result_of_another_shape_is_an_error():
    with pytest.raises(ArcmaskError, match=r"must return embeddings of shape \(5, 32\), but returned \(32,\)"):
        find_operator(lambda *inputs: inputs[0])(
            torch.randn(32), torch.randn(5, 3, 32), torch.full((5, 3), 1 / 3), torch.rand(5)
        )


def test_what_is_no_operator_is_an_error():
    with pytest.raises(ArcmaskError, match=r"an operator is a name, FILE\.py:FUNCTION or a function, but got 3"):
        find_operator(3)
