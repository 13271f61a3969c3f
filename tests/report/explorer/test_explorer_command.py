"""`arcmask explore` as a user meets it: a path on success, one sentence and nothing written otherwise."""

import pytest
from models import small_mdlm

from arcmask import cli
from arcmask.checkpoint import save


@pytest.fixture(scope="module")
def checkpoint(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    save(model, folder)
    return str(folder)


def test_it_writes_the_page_and_prints_its_path(checkpoint, forks, tmp_path):
    out = tmp_path / "new" / "page.html"
    arms = ["--feedback", "linear", "none", "--steps", "4"]
    result = forks.run(["explore", checkpoint, "--prompt", "we hold", *arms, "--out", str(out)], tmp_path)
    assert (result.code, result.stdout) == (0, f"{out}\n"), result.stderr
    assert (
        f"arcmask explore {checkpoint} --steps 4 --prompt 'we hold' --seed 0 --feedback linear none" in out.read_text()
    )


def test_the_same_command_gives_the_same_bytes_and_opens_them_if_asked(checkpoint, tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.chdir(tmp_path)
    pages = []
    for more in ([], ["--open"]):
        cli.main(["explore", checkpoint, "--steps", "3", "--length", "9", *more])
        printed = capsys.readouterr()
        assert printed.out == "explore.html\n"
        pages.append((tmp_path / "explore.html").read_bytes())
    assert printed.err == "explore.html exists with the same settings; it is replaced\n"
    assert pages[0] == pages[1]
    assert opened == [(tmp_path / "explore.html").as_uri()]


def test_another_page_is_refused_unless_it_may_be_overwritten(checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["explore", checkpoint, "--steps", "3", "--length", "9", "--feedback", "none", "--prompt", 'a "b\\ <c>']
    cli.main(words)
    page = (tmp_path / "explore.html").read_bytes()
    with pytest.raises(SystemExit, match="2"):
        cli.main([*words, "--seed", "1"])
    assert "explore.html has other settings (command is 'arcmask explore " in capsys.readouterr().err
    (tmp_path / "diary.html").write_text("my page")
    with pytest.raises(SystemExit, match="2"):
        cli.main([*words, "--out", "diary.html"])
    assert "diary.html exists already and was not written by this command" in capsys.readouterr().err
    assert ((tmp_path / "explore.html").read_bytes(), (tmp_path / "diary.html").read_text()) == (page, "my page")
    cli.main(words)
    cli.main([*words, "--seed", "1", "--overwrite"])
    assert "explore.html is overwritten\n" in capsys.readouterr().err
    assert (tmp_path / "explore.html").read_bytes() != page


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--feedback", "spherical", "spheric"], "unknown operator 'spheric'; did you mean 'spherical'? choose one of"),
        (["--prompt", "a" * 65], "the prompt has 65 tokens, but a sample has 64 positions\n"),
        (["--out", "/dev/null"], "cannot write to /dev/null: it is not a regular file\n"),
        (["--steps", "0"], "steps is 0, but must lie between 1 and 1,048,576\n"),
        (["--steps", "many"], "--steps: Expected a int. Got value: many\n"),
    ],
)
def test_bad_input_is_one_sentence(checkpoint, tmp_path, monkeypatch, capsys, options, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["explore", checkpoint, *options])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"arcmask: {sentence}")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_path_through_a_file_is_refused_before_the_checkpoint_is_opened(tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        cli.main(["explore", str(tmp_path / "no-model"), "--out", str(tmp_path / "file" / "page.html")])
    assert (
        capsys.readouterr().err
        == f"arcmask: cannot write to {tmp_path}/file/page.html: {tmp_path}/file is not a folder\n"
    )


def test_a_checkpoint_without_a_tokenizer_is_one_sentence(tmp_path, capsys):
    save(small_mdlm(), tmp_path / "bare")
    with pytest.raises(SystemExit):
        cli.main(["explore", str(tmp_path / "bare"), "--out", str(tmp_path / "page.html")])
    assert capsys.readouterr().err == f"arcmask: {tmp_path}/bare has no tokenizer, so there is no text to show\n"
    assert not (tmp_path / "page.html").exists()
