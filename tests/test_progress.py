"""Progress: a line now and then in a log, a bar on a terminal."""

import re

import pytest

from arcmask import progress
from arcmask.progress import Progress


def test_a_line_says_how_far_how_fast_and_how_long():
    job = Progress("preparing", unit="documents", total=300, done=100)
    job.advance(50)
    assert job.line(10.0) == "preparing: 150 of 300 documents, 5/s, 30 s left"
    assert job.line(100.0) == "preparing: 150 of 300 documents, 0.5/s, 5 min left"


def test_a_line_ends_with_the_note():
    job = Progress("training", unit="steps", total=4)
    job.advance(1, "loss 2.5")
    assert job.line(1.0) == "training: 1 of 4 steps, 1/s, 3 s left; loss 2.5"


def test_without_a_total_the_time_left_is_not_guessed():
    job = Progress("preparing", unit="documents", total=None)
    job.advance(50)
    assert job.line(10.0) == "preparing: 50 documents, 5/s"


@pytest.mark.parametrize(("seconds", "lines"), [(0.0, 3), (3600.0, 0)])
def test_a_log_gets_lines_at_intervals(capsys, monkeypatch, seconds, lines):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", seconds)
    with Progress("preparing", unit="documents", total=3) as job:
        for _ in range(3):
            job.advance(1)
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count("preparing") == written.err.count("\n") == lines


def test_a_terminal_gets_a_bar(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with Progress("preparing", unit="documents", total=3) as job:
        job.advance(3)
    written = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    assert "preparing" in written
    assert "3/3 documents" in written
    assert "━" in written


def test_a_narrow_terminal_shows_the_note_on_one_line_below_the_bar(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    with Progress("training", unit="steps", total=3) as job:
        job.advance(3, "loss 2.5, validation [2.4], " + "x" * 100)
    written = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    notes = [line.rstrip() for line in written.replace("\r", "\n").splitlines() if "loss" in line]
    assert notes
    assert all(line.startswith("loss 2.5, validation [2.4], x") and line.endswith("…") for line in notes)
