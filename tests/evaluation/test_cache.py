"""The cache: a text is scored once by each evaluator, by whichever process; a process that is lost holds nobody up."""

import multiprocessing
import sqlite3
import time

import pytest

from arcmask.downloads import cache_folder
from arcmask.errors import ArcmaskError
from arcmask.evaluation import PerplexitySettings
from arcmask.evaluation.cache import Cache, Share, through_cache
from arcmask.evaluation.scores import text_losses

TEXTS = [f"these truths are {number}" for number in range(30)]
SETTINGS = PerplexitySettings()


class Shout:
    """Something to compute, which counts what it is asked for."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.asked: list[str] = []
        self.fail_after = fail_after

    def __call__(self, texts):
        for place, text in enumerate(texts):
            if self.fail_after is not None and len(self.asked) >= self.fail_after:
                raise KeyboardInterrupt
            self.asked.append(text)
            yield [(place, text.upper().encode())]


def shouted(texts):
    return [text.upper().encode() for text in texts]


def test_a_text_is_never_scored_twice_by_the_same_evaluator(evaluator, cache):
    calls = []
    hook = evaluator.model.transformer.register_forward_hook(lambda *_: calls.append(1))
    first = text_losses(evaluator, TEXTS, SETTINGS, cache=cache)
    assert calls
    calls.clear()
    assert text_losses(evaluator, TEXTS[::-1] + TEXTS[:3], SETTINGS, cache=cache) == first[::-1] + first[:3]
    assert not calls
    text_losses(evaluator, TEXTS, PerplexitySettings(start="none"), cache=cache)
    assert calls, "other settings are another score"
    hook.remove()


def test_equal_texts_are_computed_once(cache):
    shout = Shout()
    assert through_cache(Cache(cache, "x", {}), ["a", "b", "a"], shout, share=Share(), what="x") == shouted("aba")
    assert sorted(shout.asked) == ["a", "b"]


def test_what_was_done_before_a_kill_is_not_done_again(cache):
    killed = Shout(fail_after=10)
    with pytest.raises(KeyboardInterrupt):
        through_cache(Cache(cache, "x", {}), TEXTS, killed, share=Share(), what="x")
    shout = Shout()
    assert through_cache(Cache(cache, "x", {}), TEXTS, shout, share=Share(), what="x") == shouted(TEXTS)
    assert len(shout.asked) == 20
    assert not set(shout.asked) & set(killed.asked)


def test_the_shares_of_all_processes_are_all_texts_each_once(cache):
    shouts = [Shout() for _ in range(3)]
    for rank in (2, 1):
        share = Share(rank=rank, world=3)
        assert through_cache(Cache(cache, "x", {}), TEXTS, shouts[rank], share=share, what="x") is None
    found = through_cache(Cache(cache, "x", {}), TEXTS, shouts[0], share=Share(rank=0, world=3), what="x")
    assert found == shouted(TEXTS)
    assert sorted(text for shout in shouts for text in shout.asked) == sorted(TEXTS)
    assert all(shout.asked for shout in shouts)


def test_a_process_that_never_comes_is_given_up_and_its_share_done(cache):
    began = time.monotonic()
    share = Share(rank=0, world=2, patience=0.5)
    assert through_cache(Cache(cache, "x", {}), TEXTS, Shout(), share=share, what="x") == shouted(TEXTS)
    assert 0.5 <= time.monotonic() - began < 30


def _write(folder, number):
    cache = Cache(folder, "x", {})
    for i in range(20):
        cache.add({f"{number}-{i}": b"%d" % i, "shared": b"same"})


def test_processes_write_at_once_and_nothing_is_lost(cache):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_write, args=(cache, number)) for number in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    keys = [f"{number}-{i}" for number in range(4) for i in range(20)]
    assert Cache(cache, "x", {}).get([*keys, "shared", "absent"]).keys() == {*keys, "shared"}


def test_another_identity_has_other_values(cache):
    Cache(cache, "x", {"evaluator": "a"}).add({"key": b"1"})
    assert Cache(cache, "x", {"evaluator": "b"}).get(["key"]) == {}


def test_a_damaged_cache_is_named(cache):
    kept = Cache(cache, "x", {})
    kept.path.write_bytes(b"this is no database, and never was one")
    with pytest.raises(ArcmaskError, match=r"the cache .* does not work .* set ARCMASK_CACHE"):
        kept.get(["key"])


def test_a_damaged_value_is_a_sentence(evaluator, cache):
    text_losses(evaluator, TEXTS[:3], SETTINGS, cache=cache)
    path = next((cache / "scores").iterdir())
    for value in (b"", b"[1]", b'{"nats": 1}', b"\xff", 1, None):
        with sqlite3.connect(path) as database:
            database.execute("UPDATE found SET value = ?", (value,))
        database.close()
        with pytest.raises(ArcmaskError, match=r"\.sqlite does not hold the losses of texts"):
            text_losses(evaluator, TEXTS[:3], SETTINGS, cache=cache)


def test_the_cache_says_what_it_is_of(cache):
    kept = Cache(cache, "x", {"evaluator": "a"})
    with sqlite3.connect(kept.path) as database:
        assert b'"evaluator": "a"' in database.execute("SELECT content FROM identity").fetchone()[0]
    database.close()


def test_the_folder_is_the_users_unless_told_otherwise(cache, monkeypatch, tmp_path):
    assert cache_folder() == cache
    monkeypatch.delenv("ARCMASK_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "arcmask"
