"""Models of timm and of Hugging Face's transformers, if installed."""

import pytest
import torch

from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError
from ddlsim.learning.layout import Layout
from ddlsim.models import hugging_face
from ddlsim.models.hugging_face import HuggingFace
from ddlsim.models.libraries import Timm

SMALL = {"n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16}


def test_a_network_of_timm_has_the_channels_and_classes_of_the_data():
    pytest.importorskip("timm")
    net = Timm(architecture="resnet10t").build((1, 28, 28), 7)
    assert net.eval()(torch.randn(2, 1, 28, 28)).shape == (2, 7)


def test_weights_of_a_file_are_loaded_except_the_last_layer(tmp_path):
    pytest.importorskip("timm")
    first = Timm(architecture="resnet10t").build((3, 32, 32), 5)
    torch.save(first.state_dict(), tmp_path / "net.pt")
    again = Timm(architecture="resnet10t", pretrained=str(tmp_path / "net.pt")).build((3, 32, 32), 9)
    assert torch.equal(again.conv1[0].weight, first.conv1[0].weight)
    assert again.fc.weight.shape[0] == 9


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (Timm(architecture="resnet18dd"), "timm has no network 'resnet18dd'. Did you mean 'resnet18d'"),
        (
            Timm(architecture="resnet10t", arguments={"colour": 1}),
            "model.arguments: timm.create_model.'resnet10t'.*colour",
        ),
    ],
)
def test_networks_and_arguments_of_timm_are_checked(model, text):
    pytest.importorskip("timm")
    with pytest.raises(ScenarioError, match=text):
        model.build((3, 32, 32), 10)


@pytest.mark.parametrize(("labels", "shape"), [((12,), (2, 12, 30)), ((), (2, 3))])
def test_a_language_model_gives_logits_at_each_position_or_one_per_text(labels, shape):
    pytest.importorskip("transformers")
    model = HuggingFace(config=SMALL).fitted(30, labels)
    built = model.build((12,), shape[-1]).eval()
    tokens = torch.randint(30, (2, 12))
    assert built(tokens).shape == shape
    assert torch.equal(built(tokens), built.head(built.core(tokens)))


def test_position_ids_of_a_hugging_face_module_stay_integers_and_are_not_sent():
    """BERT keeps them in a buffer outside its state."""
    pytest.importorskip("transformers")
    config = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 8}
    model = HuggingFace(architecture="bert", config={**config, "max_position_embeddings": 16}).fitted(30, ())
    built = model.build((12,), 3)
    ids = dict(built.named_buffers())
    (name,) = [name for name in ids if name.endswith("position_ids")]
    assert ids[name].dtype == torch.int64 and ids[name].tolist() == [list(range(16))]
    trained = sum(each.numel() for each in built.parameters() if each.requires_grad)
    assert Layout("bert", built).size == trained


def test_encoder_may_classify_texts_and_not_predict_visible_tokens():
    pytest.importorskip("transformers")
    config = {"n_layers": 1, "n_heads": 2, "dim": 8, "hidden_dim": 16}
    encoder = HuggingFace(architecture="distilbert", config=config)
    assert encoder.fitted(30, ()).build((12,), 3).eval()(torch.randint(30, (2, 12))).shape == (2, 3)
    with pytest.raises(ScenarioError, match="got distilbert, which sees the tokens to predict"):
        encoder.fitted(30, (12,)).build((12,), 30)


def test_look_ahead_is_determined_once_for_all_modules(monkeypatch):
    pytest.importorskip("transformers")
    asked = []
    monkeypatch.setattr(hugging_face, "_refuse_seeing_ahead", lambda *_: asked.append(1))
    model = HuggingFace(config=SMALL).fitted(30, (12,))
    for _ in range(3):
        model.build((12,), 30)
    assert asked == [1]


def test_a_model_from_a_folder_has_its_weights(tmp_path):
    transformers = pytest.importorskip("transformers")
    own = transformers.GPT2Model(transformers.GPT2Config(vocab_size=30, **SMALL))
    own.save_pretrained(tmp_path)
    built = HuggingFace(pretrained=str(tmp_path)).fitted(30, (12,)).build((12,), 30)
    assert torch.equal(built.core[0].model.wte.weight, own.wte.weight)
    with pytest.raises(ScenarioError, match=r"architecture: expected model_type 'gpt2', .* got 'llama'"):
        HuggingFace(architecture="llama", pretrained=str(tmp_path)).fitted(30, (12,)).build((12,), 30)


def test_architectures_of_transformers_are_checked(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(ScenarioError, match=r"no model type 'gpt22'\. Did you mean 'gpt2'"):
        HuggingFace(architecture="gpt22").fitted(30, ()).build((12,), 3)
    with pytest.raises(ScenarioError, match=r"gpt2 has no key 'n_layers'\. Did you mean 'n_layer'"):
        HuggingFace(config={**SMALL, "n_layers": 1}).fitted(30, ()).build((12,), 3)
    assert HuggingFace(config={**SMALL, "num_hidden_layers": 1, "attn_implementation": "eager"}).build((12,), 3)
    with pytest.raises(DataMissing, match=r"expected a folder made by save_pretrained"):
        HuggingFace(pretrained=str(tmp_path)).fitted(30, ()).build((12,), 3)


@pytest.fixture
def saved(tmp_path):
    pytest.importorskip("transformers")
    from transformers import GPT2Config, GPT2Model

    GPT2Model(GPT2Config(vocab_size=30, **SMALL)).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"config": {"n_layer": 5}}, r"expected n_layer \d, as in .*, got 5"),
        ({"config": {"n_head": 1}}, r"expected n_head \d, as in .*, got 1"),
        ({"architecture": "bert"}, "expected model_type 'gpt2', .* got 'bert'"),
    ],
)
def test_keys_contradicting_the_folder_are_refused(saved, keys, text):
    with pytest.raises(ScenarioError, match=text):
        HuggingFace(pretrained=str(saved), **keys).fitted(30, (12,)).build((12,), 30)
    HuggingFace(pretrained=str(saved), architecture="gpt2", config=SMALL).fitted(30, (12,)).build((12,), 30)


def test_missing_weights_of_a_folder_are_an_error(saved):
    import json

    about = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**about, "n_layer": 5}))
    with pytest.raises(DataDamaged, match=r"no weights of h\.\d\..* which config.json requires"):
        HuggingFace(pretrained=str(saved)).fitted(30, (12,)).build((12,), 30)


def test_a_folder_is_read_once_for_all_nodes(saved, monkeypatch):
    from transformers import AutoModel

    read, count = AutoModel.from_pretrained, []
    monkeypatch.setattr(AutoModel, "from_pretrained", lambda *args, **keys: (count.append(1), read(*args, **keys))[1])
    model = HuggingFace(pretrained=str(saved)).fitted(30, (12,))
    first, second = model.build((12,), 30), model.build((12,), 30)
    with torch.no_grad():
        first.core[0].model.wte.weight.zero_()
    assert len(count) == 1 and second.core[0].model.wte.weight.abs().sum() > 0
