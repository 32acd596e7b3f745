import pytest
import torch

from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError
from ddlsim.models.libraries import ResNet18


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Return torchvision's state dict of ResNet-18 with 1,000 classes, and its file."""
    from torchvision.models import resnet18

    torch.manual_seed(5)
    state = resnet18(weights=None).state_dict()
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(state, path)
    return state, str(path)


def test_changed_file_is_read_again(weights, tmp_path):
    path = tmp_path / "changing.pth"
    for value in (1.0, 2.0):
        torch.save({**weights[0], "conv1.weight": torch.full_like(weights[0]["conv1.weight"], value)}, path)
        assert ResNet18(pretrained=str(path)).build((3, 32, 32), 10).core.conv1.weight[0, 0, 0, 0] == value


def test_all_layers_but_the_last_start_with_the_weights_of_the_file(weights):
    state, path = weights
    torch.manual_seed(0)
    plain = ResNet18().build((3, 32, 32), 100)
    torch.manual_seed(0)
    built = ResNet18(pretrained=path).build((3, 32, 32), 100)
    assert torch.equal(built.core.conv1.weight, state["conv1.weight"])
    assert torch.equal(built.core.layer4[1].bn2.running_var, state["layer4.1.bn2.running_var"])
    assert built.head.weight.shape == (100, 512) and torch.equal(built.head.weight, plain.head.weight)


def test_with_latent_features_the_layer_before_the_head_is_new(weights):
    state, path = weights
    built = ResNet18(pretrained=path, latent=64).build((3, 32, 32), 10)
    assert torch.equal(built.core.layer1[0].conv1.weight, state["layer1.0.conv1.weight"])
    assert built.core.fc.weight.shape == (64, 512)


def test_grey_images_do_not_fit_pretrained_weights(weights):
    with pytest.raises(ScenarioError, match="resnet18 with pretrained weights takes images of 3 channels"):
        ResNet18(pretrained=weights[1]).check((1, 28, 28))
    ResNet18().check((1, 28, 28))


def test_missing_file_is_reported(tmp_path):
    with pytest.raises(DataMissing, match=r"expected none, torchvision or the path of a state dict, got .*none.pth"):
        ResNet18(pretrained=str(tmp_path / "none.pth")).build((3, 32, 32), 10)


@pytest.mark.parametrize(
    "content, text",
    [
        ({"conv1.weight": torch.zeros(64, 3, 7, 7)}, "weights of another network .no bn1.weight"),
        ({"conv1.weight": torch.zeros(64, 1, 7, 7)}, "does not fit: size mismatch for conv1.weight"),
        ([torch.zeros(1)], "holds list, expected a state dict"),
    ],
)
def test_weights_of_another_network_are_refused(tmp_path, content, text):
    torch.save(content, tmp_path / "wrong.pth")
    with pytest.raises(DataDamaged, match=text):
        ResNet18(pretrained=str(tmp_path / "wrong.pth")).build((3, 32, 32), 10)


def test_a_damaged_file_is_reported(tmp_path):
    (tmp_path / "cut.pth").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(DataDamaged, match=r"cut.pth cannot be read"):
        ResNet18(pretrained=str(tmp_path / "cut.pth")).build((3, 32, 32), 10)


def test_failed_download_of_weights_is_reported(monkeypatch):
    from torchvision.models import ResNet18_Weights

    def no_network(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(ResNet18_Weights, "get_state_dict", no_network)
    with pytest.raises(DataMissing, match=r"no route to host. Get https://download.pytorch.org/models/resnet18"):
        ResNet18(pretrained="torchvision").build((3, 32, 32), 10)


@pytest.mark.parametrize("key", ["state_dict", "model", "net", None])
@pytest.mark.parametrize("prefix", ["", "module.", "model.", "module._orig_mod."])
def test_weights_are_found_in_the_checkpoints_of_training_scripts(weights, tmp_path, key, prefix):
    state = {prefix + name: values for name, values in weights[0].items()}
    torch.save({key: state, "epoch": 3, "best_prec1": 0.9} if key else state, tmp_path / "w.pth")
    built = ResNet18(pretrained=str(tmp_path / "w.pth")).build((3, 32, 32), 10)
    assert torch.equal(built.core.layer4[1].bn2.running_var, weights[0]["layer4.1.bn2.running_var"])


def test_a_wrapped_checkpoint_of_another_network_is_not_unwrapped(weights, tmp_path):
    state = {f"module.{name}": values for name, values in weights[0].items()}
    del state["module.conv1.weight"]
    torch.save({"state_dict": state}, tmp_path / "w.pth")
    with pytest.raises(DataDamaged, match=r"weights of another network .no conv1\.weight"):
        ResNet18(pretrained=str(tmp_path / "w.pth")).build((3, 32, 32), 10)
