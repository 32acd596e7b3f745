"""Models by name; each marks its `core` (shared by all) and its `head` (which FACADE and DePRL separate from it).

A new one needs a file with a frozen dataclass derived from base.py's ModelSettings (fields = YAML keys) that offers
`build(image_shape, num_classes)`, and a line in this table. It returns a SplitModel, or any module with submodules
`core` and `head` whose forward is head(core(x)), or any whose last layer is linear (whole.py). torch is imported inside
`build`, so listing and checking need none.
"""

from ddlsim.models.libraries import ModelTable

MODELS = ModelTable(
    "model",
    __name__,
    {
        "gn_lenet": ".cnn:GNLeNet",
        "lenet64": ".cnn:LeNet64",
        "resnet8": ".cnn:ResNet8",
        "mlp": ".cnn:MLP",
        "linear": ".cnn:Linear",
        "cifar_cnn": ".cnn:CifarCNN",
        "fashion_cnn": ".cnn:FashionCNN",
        "resnet18": ".libraries:ResNet18",
        "shufflenet_v2": ".libraries:ShuffleNetV2",
        "googlenet": ".libraries:GoogLeNet",
        "alexnet": ".libraries:AlexNet",
        "alexnet_small": ".cnn:AlexNetSmall",
        "vgg11": ".cnn:VGG11",
        "sizes": ".base:Sizes",
        "lstm": ".texts:LSTM",
        "gpt": ".texts:GPT",
        "embedding_bag": ".texts:EmbeddingBag",
        "timm": ".libraries:Timm",
        "hugging_face": ".hugging_face:HuggingFace",
        "mixed": ".mixed:Mixed",
    },
    contract=".base:ModelSettings",
)
