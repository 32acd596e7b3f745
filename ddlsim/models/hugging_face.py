"""Language models of Hugging Face's transformers by their kind (Wolf et al., EMNLP 2020): pip install 'ddlsim[hf]'.

The core is the model without its own output layer, the head a linear layer on the hidden states: at every position, for
the next token, or on their mean, for a label per text. So an output layer never shares the embedding's weights.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim.errors import DataDamaged, DataMissing, ScenarioError
from ddlsim.models.pretrained import NONE
from ddlsim.models.shapes import ImageShape
from ddlsim.models.texts import UNKNOWN_TOKENS, TextModel

if TYPE_CHECKING:
    from types import ModuleType

    from ddlsim.models.split import SplitModel

Value = bool | int | float | str | None


@dataclass(frozen=True, kw_only=True)
class HuggingFace(TextModel):
    """A model of Hugging Face's transformers by its kind: gpt2, bert, llama, ...; the head is a linear layer on it.

    Args:
        architecture: a model type, as `model_type` in config.json.
        config: its configuration, such as {n_layer: 2, n_head: 2, n_embd: 64} of gpt2; the size of the vocabulary is
            that of the data.
        pretrained: none, or a folder with config.json and weights (save_pretrained); nothing is downloaded.
    """

    architecture: str = "gpt2"
    config: dict[str, Value] = field(default_factory=dict, hash=False)
    pretrained: str = NONE

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model with random weights, or those of the folder.

        Raises:
            ScenarioError: there is no such kind, the configuration does not fit it, the folder holds another one, or it
                predicts each next token while it sees it.
            DataMissing, DataDamaged: the folder is not there, or holds no model.
        """
        from torch import nn

        from ddlsim.models.sequences import HiddenStates, MeanOverPositions
        from ddlsim.models.split import SplitModel

        self.check(image_shape)
        model = self._model()
        states = HiddenStates(model)
        if self.predicts == "each" and "looks_back" not in vars(self):  # once, not for every module of a run
            _refuse_seeing_ahead(states, self.architecture)
            vars(self)["looks_back"] = True
        pooled = nn.Sequential(states, MeanOverPositions()) if self.predicts == "last" else nn.Sequential(states)
        return SplitModel(pooled, nn.Linear(model.config.hidden_size, num_classes))

    def _model(self) -> Any:
        """The model without an output layer."""
        transformers = _transformers()
        if self.pretrained != NONE:
            model = _from_folder(transformers, Path(self.pretrained).expanduser(), self.config)
            if self.architecture not in ("gpt2", model.config.model_type):  # gpt2: it need not be said
                text = f"{self.pretrained} holds a {model.config.model_type}, got {self.architecture}"
                raise ScenarioError(f"model.architecture: {text}. Leave it out, or name another folder.")
            return model
        known = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
        if self.architecture not in known:
            near = difflib.get_close_matches(self.architecture, known, n=3)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ScenarioError(f"model.architecture: transformers has no model type {self.architecture!r}.{meant}")
        sizes = {"vocab_size": self.tokens or UNKNOWN_TOKENS, "is_decoder": self.predicts == "each", "use_cache": False}
        try:
            usual = transformers.AutoConfig.for_model(self.architecture)
            config = transformers.AutoConfig.for_model(self.architecture, **{**sizes, **self.config})
            _refuse_unknown(self.config, config, usual, self.architecture)
            return transformers.AutoModel.from_config(config)
        except ScenarioError:
            raise
        except Exception as error:  # configurations check themselves in many ways
            raise ScenarioError(f"model.config: {self.architecture}: {type(error).__name__}: {error}") from error


def _from_folder(transformers: "ModuleType", folder: Path, config: dict[str, Value]) -> Any:
    if not (folder / "config.json").is_file():
        raise DataMissing(f"model.pretrained: {folder} has no config.json; expected a folder made by save_pretrained.")
    try:
        return transformers.AutoModel.from_pretrained(folder, local_files_only=True, use_cache=False, **config)
    except Exception as error:  # damaged files fail in any way they like
        raise DataDamaged(f"model.pretrained: {folder} cannot be read: {type(error).__name__}: {error}") from error


def _refuse_unknown(given: Mapping[str, Value], config: Any, usual: Any, architecture: str) -> None:
    """Raises ScenarioError if a configuration has kept a key as a mere attribute, which `usual` has not: no model of it
    looks there.
    """
    unknown = next((key for key in given if hasattr(config, key) and not hasattr(usual, key)), None)
    if unknown is not None:
        near = difflib.get_close_matches(unknown, [*usual.to_dict(), *type(usual).attribute_map], n=3)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ScenarioError(f"model.config: {architecture} has no key {unknown!r}.{meant}")


def _refuse_seeing_ahead(states: Any, architecture: str) -> None:
    """Raises ScenarioError if what comes later in a text changes the states of what comes before."""
    import torch

    was_training = states.training
    states.eval()
    with torch.no_grad():
        first = states(torch.zeros(1, 4, dtype=torch.int64))
        other = states(torch.tensor([[0, 0, 0, 1]]))
    states.train(was_training)
    if not torch.equal(first[:, :3], other[:, :3]):
        raise ScenarioError(
            f"model.architecture: {architecture} sees the tokens that it is to predict. Choose a causal model (gpt2, "
            "llama, ...), or predicts: last for one label per text."
        )


def _transformers() -> "ModuleType":
    try:
        import transformers
    except ImportError as error:
        raise DataMissing(f"model: transformers is not installed ({error}): pip install 'ddlsim[hf]'.") from error
    return transformers
