import pytest
import torch

from ddlsim.foundation.errors import ScenarioError
from ddlsim.models import MODELS
from ddlsim.models.cnn import MLP, AlexNetSmall, CifarCNN, FashionCNN, GNLeNet, LeNet64, Linear, ResNet8
from ddlsim.models.libraries import AlexNet, GoogLeNet, ResNet18, ShuffleNetV2


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def buffers(module):
    return sum(buffer.numel() for buffer in module.buffers())


@pytest.mark.parametrize(
    "model, shape, classes, core, head",
    [
        (GNLeNet(), (3, 32, 32), 10, 79_584, 10_250),
        (GNLeNet(), (1, 28, 28), 10, 79_584 - 2 * 32 * 25, 64 * 9 * 10 + 10),
        (LeNet64(), (3, 64, 64), 10, 79_584, 40_970),
        (ResNet8(), (3, 64, 64), 41, 19_488, 293_161),
        (CifarCNN(), (3, 32, 32), 10, 62_006 - 850, 850),
        (CifarCNN(dropout=0.5), (3, 32, 32), 10, 62_006 - 850, 850),
        (FashionCNN(), (1, 28, 28), 10, 56_714 - 650, 650),
        (FashionCNN(), (1, 28, 28), 20, 57_364 - 1_300, 1_300),
        (MLP(hidden=(512,), dropout=0.2), (1, 28, 28), 20, 784 * 512 + 512, 512 * 20 + 20),
        (Linear(), (1, 28, 28), 10, 0, 7_850),
        (ResNet18(), (3, 32, 32), 100, 11_227_812 - 51_300, 51_300),
        (ResNet18(latent=512), (3, 32, 32), 10, 11_439_168, 5_130),
        (ResNet18(latent=512), (1, 28, 28), 10, 11_432_896, 5_130),
        (ShuffleNetV2(latent=512), (3, 32, 32), 10, 1_778_404, 5_130),
        (GoogLeNet(latent=512), (3, 32, 32), 10, 6_124_704, 5_130),
        (AlexNetSmall(), (3, 32, 32), 10, 1_813_632, 5_130),
        (AlexNetSmall(), (1, 28, 28), 10, 1_812_480, 5_130),
    ],
)
def test_parameter_counts_of_core_and_head(model, shape, classes, core, head):
    built = model.build(shape, classes)
    assert (parameters(built.core), parameters(built.head)) == (core, head)


def test_published_totals():
    assert parameters(GNLeNet().build((3, 32, 32), 10)) == 89_834
    assert parameters(LeNet64().build((3, 64, 64), 10)) == 120_554
    assert parameters(ResNet8().build((3, 64, 64), 41)) == 312_649
    assert parameters(MLP(hidden=(512,)).build((1, 28, 28), 20)) == 412_180


def test_batch_norm_statistics_count_as_buffers():
    assert buffers(ResNet8().build((3, 64, 64), 41)) == 1_353
    assert buffers(ResNet18().build((3, 32, 32), 100)) == 9_620


def test_gn_lenet_has_no_buffers():
    assert buffers(GNLeNet().build((3, 32, 32), 10)) == 0


NOT_FOR_IMAGES = (
    "sizes",
    "mixed",
    "lstm",
    "gpt",
    "embedding_bag",
    "timm",
    "hugging_face",
)  # see test_texts.py, test_libraries.py


@pytest.mark.parametrize("name", [name for name in MODELS if name not in NOT_FOR_IMAGES])
def test_every_model_gives_one_logit_per_class_and_is_head_after_core(name):
    model = MODELS[name]()
    shapes = [(3, 32, 32), (1, 28, 28), (3, 64, 64)]

    def fits(shape):
        try:
            model.check(shape)
        except ScenarioError:
            return False
        return True

    shape = next(shape for shape in shapes if fits(shape))
    built = model.build(shape, 7).eval()
    images = torch.randn(2, *shape)
    logits = built(images)
    assert logits.shape == (2, 7)
    assert torch.equal(logits, built.head(built.core(images)))


@pytest.mark.parametrize(
    "model, wrong, wanted",
    [
        (GNLeNet(), (3, 7, 32), "at least 8 x 8"),
        (LeNet64(), (3, 32, 32), "3 x 64 x 64"),
        (CifarCNN(), (1, 28, 28), "3 x 32 x 32"),
        (FashionCNN(), (3, 32, 32), "1 x 28 x 28"),
        (ResNet18(), (3, 27, 32), "at least 28 x 28"),
        (AlexNet(), (3, 32, 32), "at least 63 x 63"),
        (ResNet8(), (3, 2, 2), "at least 4 x 4"),
    ],
)
def test_unsuitable_images_are_refused_with_the_supported_shapes(model, wrong, wanted):
    with pytest.raises(ScenarioError) as caught:
        model.build(wrong, 10)
    assert wanted in str(caught.value)
    assert " x ".join(map(str, wrong)) in str(caught.value)


def test_same_seed_same_initial_model():
    def first(seed):
        torch.manual_seed(seed)
        return next(GNLeNet().build((1, 28, 28), 10).parameters())

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


@pytest.mark.parametrize(
    ("settings", "shape"), [(MLP(hidden=(64,), dropout=0.5), (1, 4, 4)), (CifarCNN(dropout=0.5), (3, 32, 32))]
)
def test_dropout_acts_only_in_training(settings, shape):
    model = settings.build(shape, 3)
    images = torch.ones(1, *shape)
    assert torch.equal(model.eval()(images), model(images))
    assert not torch.equal(model.train()(images), model(images))
