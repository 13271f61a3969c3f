"""Models whose tokenizer has [CLS] and [SEP]: they enclose rows, are never masked, and no special token is sampled."""

from pathlib import Path

import pytest
import tokenizers as rust
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizerFast,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

import arcmask
from arcmask.data import PrepareConfig, open_prepared, open_tokenizer, prepare, read_index
from arcmask.data.packing import describe_job
from arcmask.data.tokenizers import adopt_tokenizer
from arcmask.diagnostics.predictions import predict
from arcmask.errors import ArcmaskError
from arcmask.evaluation import Reference
from arcmask.evaluation.sets import _default_tokenizer
from arcmask.feedback import Confidence, SoftMask
from arcmask.objective import TwoPass
from arcmask.sampling.prompts import prompt_ids
from arcmask.sampling.sample_file import SampleSet

TEXTS = ["We hold these truths to be self evident, that all men are created equal."] * 4
SIZE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}


def bert_tokenizer() -> PreTrainedTokenizerFast:
    names = {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    inner = rust.Tokenizer(rust.models.WordPiece(unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = rust.normalizers.Lowercase(), rust.pre_tokenizers.BertPreTokenizer()
    inner.decoder = rust.decoders.WordPiece()
    trainer = rust.trainers.WordPieceTrainer(vocab_size=80, special_tokens=list(names.values()), show_progress=False)
    inner.train_from_iterator(TEXTS, trainer)
    inner.post_processor = rust.processors.BertProcessing(
        ("[SEP]", inner.token_to_id("[SEP]")), ("[CLS]", inner.token_to_id("[CLS]"))
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner, **{f"{key}_token": value for key, value in names.items()})


def roberta_tokenizer() -> PreTrainedTokenizerFast:
    names = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "cls": "<s>", "sep": "</s>"}
    inner = rust.Tokenizer(rust.models.BPE())
    inner.pre_tokenizer = rust.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = rust.decoders.ByteLevel()
    special = list(dict.fromkeys(names.values()))
    alphabet = sorted(rust.pre_tokenizers.ByteLevel.alphabet())
    trainer = rust.trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(TEXTS, trainer)
    mask = rust.AddedToken("<mask>", lstrip=True, special=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, mask_token=mask, **{f"{key}_token": value for key, value in names.items()}
    )


@pytest.fixture(scope="module", params=["bert", "roberta"])
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer(family) -> PreTrainedTokenizerFast:
    return bert_tokenizer() if family == "bert" else roberta_tokenizer()


@pytest.fixture(scope="module")
def model(family, tokenizer):
    torch.manual_seed(0)
    settings = SIZE | {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    if family == "bert":
        model = BertForMaskedLM(BertConfig(**settings, max_position_embeddings=24))
    else:
        model = RobertaForMaskedLM(RobertaConfig(**settings, max_position_embeddings=24 + tokenizer.pad_token_id + 1))
    with torch.no_grad():  # a model that would draw nothing but special tokens
        model.get_output_embeddings().bias[tokenizer.all_special_ids] = 30.0
    return model.eval()


@pytest.fixture(scope="module")
def denoiser(model, tokenizer):
    return arcmask.wrap(model, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def data(tokenizer, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("data")
    tokenizer.save_pretrained(folder / "tokenizer")
    (folder / "texts").mkdir()
    for number in range(20):
        (folder / "texts" / f"{number:02d}.txt").write_text(" ".join(TEXTS))
    settings = {"tokenizer": str(folder / "tokenizer"), "length": 16, "holdout": "every:4", "shard_rows": 7}
    prepare(PrepareConfig(corpus=str(folder / "texts"), out=str(folder / "out"), **settings))
    return str(folder / "out")


def test_the_tokenizer_says_which_id_is_the_mask_and_stays_as_it_was(model, tokenizer, denoiser):
    assert denoiser.mask_id == tokenizer.mask_token_id
    assert denoiser.enclosing == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    assert set(denoiser.special_ids) == set(tokenizer.all_special_ids)
    assert len(denoiser.special_ids) == 5
    assert not tokenizer.split_special_tokens
    assert tokenizer(tokenizer.mask_token, add_special_tokens=False).input_ids == [tokenizer.mask_token_id]
    assert arcmask.wrap(model, 7, tokenizer=tokenizer).mask_id == 7
    again = arcmask.wrap(model, tokenizer=denoiser.tokenizer)
    assert again.tokenizer is denoiser.tokenizer


def test_a_tokenizer_that_does_not_fit_is_an_error(model, tokenizer):
    with pytest.raises(ArcmaskError, match="a str is not a tokenizer of transformers"):
        arcmask.wrap(model, tokenizer="bert")
    bare = PreTrainedTokenizerFast(tokenizer_object=rust.Tokenizer(rust.models.BPE({"a": 0, "b": 1}, [])))
    with pytest.raises(ArcmaskError, match="has no mask token; give mask_id too"):
        arcmask.wrap(model, tokenizer=bare)
    assert arcmask.wrap(model, 1, tokenizer=bare).special_ids == ()
    with pytest.raises(ArcmaskError, match=rf"has 50258 entries, but the model has {len(tokenizer)}"):
        arcmask.wrap(model, tokenizer=open_tokenizer("gpt2"))


@pytest.mark.parametrize("rule", ["ancestral", "confidence", "remask-loop"])
@pytest.mark.parametrize("feedback", [None, SoftMask(confidence=Confidence(fixed=0.4))])
@pytest.mark.filterwarnings("ignore:the model was not trained")
def test_no_special_token_is_sampled_and_rows_are_enclosed(denoiser, tokenizer, rule, feedback):
    samples = arcmask.sample(denoiser, num=3, length=20, steps=6, rule=rule, feedback=feedback, trace=True)
    assert (samples.tokens[:, 0] == tokenizer.cls_token_id).all()
    assert (samples.tokens[:, -1] == tokenizer.sep_token_id).all()
    special = torch.tensor(tokenizer.all_special_ids)
    assert not torch.isin(samples.tokens[:, 1:-1], special).any()
    # Nor are they candidates that are fed back.
    for step in samples.traces[0].steps:
        masked = step.tokens == denoiser.mask_id
        assert not torch.isin(step.ids[masked], special).any()
    assert samples.texts == [denoiser.tokenizer.decode(row[1:-1]) for row in samples.tokens.tolist()]


def test_without_steps_to_reveal_them_positions_are_filled_with_text_too(denoiser, tokenizer):
    samples = arcmask.sample(denoiser, num=2, length=20, steps=1, rule="remask-loop")
    assert not torch.isin(samples.tokens[:, 1:-1], torch.tensor(tokenizer.all_special_ids)).any()


def test_the_models_own_mask_token_in_a_prompt_is_a_hole(denoiser, tokenizer, family):
    own, usual = (prompt_ids(denoiser, f"we hold{hole} truths") for hole in (tokenizer.mask_token, "[MASK]"))
    assert own == usual
    words = tokenizer("we hold", add_special_tokens=False).input_ids
    assert own[: len(words) + 1] == [*words, tokenizer.mask_token_id]
    # As transformers reads it: in RoBERTa the mask takes the space before it.
    expected = tokenizer(f"we hold {tokenizer.mask_token} truths", add_special_tokens=False).input_ids
    assert prompt_ids(denoiser, f"we hold {tokenizer.mask_token} truths") == expected
    assert denoiser.tokenizer.mask_takes_space == (family == "roberta")
    samples = arcmask.sample(denoiser, prompt=f"we hold{tokenizer.mask_token} truths", steps=3)
    assert samples.tokens.shape[1] == len(own) + 2
    assert samples.tokens[0, 1 : 1 + len(words)].tolist() == words
    assert samples.texts[0].startswith("we hold")


def test_a_prompt_is_continued_up_to_the_last_position(denoiser, tokenizer):
    begin, end = denoiser.enclosing
    words = tokenizer("we hold", add_special_tokens=False).input_ids
    for prompt in ("we hold", words, [begin, *words]):
        row = arcmask.sample(denoiser, prompt=prompt, length=20, steps=3).tokens[0].tolist()
        assert row[: 1 + len(words)] == [begin, *words]
        assert (len(row), row[-1]) == (20, end)
    row = [begin, *words, denoiser.mask_id, end]
    assert arcmask.sample(denoiser, prompt=row, steps=2).tokens.shape[1] == len(row)
    with pytest.raises(ArcmaskError, match=f"the prompt has {len(words) + 2} tokens .*, but a sample has 3 positions"):
        arcmask.sample(denoiser, prompt=words, length=3)


def test_prepared_rows_are_enclosed_and_lose_nothing(data, tokenizer):
    assert read_index(data).settings["row_form"] == "enclosed"
    begin, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    for split, documents in (("train", 15), ("validation", 5)):
        corpus = open_prepared(data, split)
        rows = corpus.rows(range(len(corpus)))
        assert (rows[:, 0] == begin).all()
        assert (rows[:, -1] == end).all()
        stream = [*tokenizer(" ".join(TEXTS), add_special_tokens=False).input_ids, end] * documents
        assert rows[:, 1:-1].flatten().tolist() == stream[: 14 * len(rows)]
        assert corpus.record.dropped_tokens == len(stream) - 14 * len(rows)


def test_the_form_of_rows_is_a_setting_that_is_recorded(data, tmp_path):
    folder = Path(data).parent
    settings = {"corpus": str(folder / "texts"), "tokenizer": str(folder / "tokenizer"), "length": 16}
    settings |= {"holdout": "every:4", "shard_rows": 7}
    assert prepare(PrepareConfig(out=data, **settings)).hash == read_index(data).hash
    with pytest.raises(ArcmaskError, match="row_form is 'enclosed' there and 'stream' here"):
        prepare(PrepareConfig(out=data, row_form="stream", **settings))
    stream = PrepareConfig(out=str(tmp_path / "stream"), row_form="stream", **settings)
    assert "between" not in describe_job(stream)
    index = prepare(stream)
    assert index.settings["row_form"] == "stream"
    assert prepare(PrepareConfig(out=stream.out, **settings)).hash == index.hash
    assert "rows of 16 tokens in x between [CLS] and [SEP]" in describe_job(PrepareConfig(out="x", **settings))
    for change, message in (
        ({"tokenizer": "text8", "row_form": "enclosed"}, r"the tokenizer text8 has neither \[CLS\] and \[SEP\] nor"),
        ({"length": 2}, "length is 2, but a row with .* needs at least 3 tokens"),
    ):
        with pytest.raises(ArcmaskError, match=message):
            prepare(PrepareConfig(**settings | {"out": str(tmp_path / "no")} | change))
    with pytest.raises(ArcmaskError, match="unknown row_form 'encloses'; did you mean 'enclosed'"):
        PrepareConfig(**settings, out="x", row_form="encloses")


def test_what_encloses_a_row_is_never_masked_and_costs_nothing(data, denoiser):
    corpus = open_prepared(data, "validation")
    rows, time = corpus.rows([0, 1]), torch.tensor([0.5, 1.0])
    inner = ~torch.isin(rows, torch.tensor(denoiser.enclosing))
    assert not inner.all()
    objective = TwoPass(denoiser, SoftMask(confidence=Confidence(fixed=0.4)))
    everything = torch.ones_like(rows, dtype=torch.bool)
    for fed in (False, True):
        ours, theirs = (objective(rows, time, masked, feedback=fed) for masked in (everything, inner))
        assert ours.masked == int(inner.sum())
        assert torch.equal(ours.loss, theirs.loss)
    candidates, _ = objective.draft(rows, time, everything, top_k=3)
    assert len(candidates) == int(inner.sum())
    assert torch.equal(predict(denoiser, rows, [1.0])[0].targets, rows[inner])


def test_reference_text_has_no_special_tokens_around_it(data, tokenizer):
    reference = Reference(data)
    begin, end = tokenizer.cls_token, tokenizer.sep_token
    assert not any(text.startswith(begin) or text.endswith(end) for text in reference.texts(8, seed=0))
    assert reference.words().words <= {word.strip(".,").lower() for word in TEXTS[0].split()} | {"equalwe"}


def test_a_saved_model_has_the_same_tokenizer_and_samples(denoiser, tmp_path):
    denoiser.save(tmp_path / "model")
    again = arcmask.load(tmp_path / "model")
    assert (again.mask_id, again.enclosing, again.special_ids) == (
        denoiser.mask_id,
        denoiser.enclosing,
        denoiser.special_ids,
    )
    settings = {"length": 12, "steps": 4, "precision": "float32"}
    assert torch.equal(arcmask.sample(again, **settings).tokens, arcmask.sample(denoiser, **settings).tokens)


def test_other_tokenizers_have_none_of_this(model):
    for name in ("text8", "gpt2"):
        tokenizer = open_tokenizer(name)
        assert (tokenizer.enclosing, tokenizer.special_ids, tokenizer.mask_takes_space) == (None, (), False)
        assert tokenizer.mask_token == "[MASK]"
    denoiser = arcmask.wrap(model, 4)
    assert (denoiser.enclosing, denoiser.special_ids) == (None, ())
    tiny = arcmask.load("sotu-tiny")
    assert (tiny.enclosing, tiny.special_ids) == (None, ())


def test_the_entropy_of_enclosed_samples_names_the_tokenizer_of_the_reference(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = adopt_tokenizer(BertTokenizerFast(str(tmp_path / "vocab.txt")))
    samples = SampleSet("samples", [tokenizer.decode_row([2, 5, 6, 3])], [[2, 5, 6, 3]])
    assert _default_tokenizer(tokenizer, samples) == tokenizer.name
