"""Language models of Hugging Face's transformers by their kind (Wolf et al., EMNLP 2020): pip install 'ddlsim[hf]'.

The core is the model without its own output layer, the head a linear layer on the hidden states: at every position, for
the next token, or on their mean, for a label per text. So an output layer never shares the embedding's weights.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim.foundation.environment import needed
from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError, did_you_mean
from ddlsim.foundation.input_files import state_of
from ddlsim.models.base import ImageShape
from ddlsim.models.libraries import NONE
from ddlsim.models.texts import UNKNOWN_TOKENS, TextModel

if TYPE_CHECKING:
    from ddlsim.models.split import SplitModel

Value = bool | int | float | str | None


@dataclass(frozen=True, kw_only=True)
class HuggingFace(TextModel):
    """A model of Hugging Face's transformers by its kind: gpt2, bert, llama, ...; the head is a linear layer on it.

    Args:
        architecture: a model type, as `model_type` in config.json; null: the folder's, or gpt2.
        config: its configuration, such as {n_layer: 2, n_head: 2, n_embd: 64} of gpt2; the size of the vocabulary is
            the data's. With a folder it may only repeat config.json.
        pretrained: none, or a folder with config.json and weights (save_pretrained); nothing is downloaded.
    """

    architecture: str | None = None
    config: dict[str, Value] = field(default_factory=dict, hash=False)
    pretrained: str = NONE

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """Build a fresh model with random weights, or the folder's.

        Raises:
            ScenarioError: if the kind does not exist, the configuration does not fit it, the folder holds another kind,
                or the model sees the next token while it predicts it.
            DataMissing, DataDamaged: if the folder is missing, or holds no model.
        """
        from torch import nn

        from ddlsim.models.sequences import HiddenStates, MeanOverPositions
        from ddlsim.models.split import SplitModel

        self.check(image_shape)
        model = self._model()
        states = HiddenStates(model)
        if self.predicts == "each" and "looks_back" not in vars(self):  # once, not for every module of a run
            _refuse_seeing_ahead(states, model.config.model_type)
            vars(self)["looks_back"] = True
        pooled = nn.Sequential(states, MeanOverPositions()) if self.predicts == "last" else nn.Sequential(states)
        return SplitModel(pooled, nn.Linear(model.config.hidden_size, num_classes))

    def _model(self) -> Any:
        """The model without an output layer."""
        transformers = needed("transformers", "hf", "model")
        if self.pretrained != NONE:
            return self._from_folder(Path(self.pretrained).expanduser())
        architecture = self.architecture or "gpt2"
        known = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
        if architecture not in known:
            meant = did_you_mean(architecture, known)
            raise ScenarioError(f"model.architecture: transformers has no model type {architecture!r}.{meant}")
        sizes = {"vocab_size": self.tokens or UNKNOWN_TOKENS, "is_decoder": self.predicts == "each", "use_cache": False}
        try:
            usual = transformers.AutoConfig.for_model(architecture)
            config = transformers.AutoConfig.for_model(architecture, **{**sizes, **self.config})
            model = transformers.AutoModel.from_config(config)
        except Exception as error:  # configurations check themselves in many ways
            raise ScenarioError(f"model.config: {architecture}: {type(error).__name__}: {error}") from error
        _refuse_unknown(self.config, config, usual, architecture)
        return model

    def _from_folder(self, folder: Path) -> Any:
        """A copy of the model in a folder.

        Raises:
            ScenarioError: the scenario contradicts its config.json.
        """
        if not (folder / "config.json").is_file():
            raise DataMissing(f"model.pretrained: expected a folder made by save_pretrained, got {folder}.")
        model = _read_folder(folder, tuple(sorted((str(path), state_of(str(path))) for path in folder.iterdir())))
        expected = {"model_type": self.architecture or model.config.model_type, **self.config}
        for key, value in expected.items():
            there = getattr(model.config, key, None)
            if there != value:
                place = "model.architecture" if key == "model_type" else "model.config"
                text = f"expected {key} {there!r}, as in {folder}, got {value!r}"
                raise ScenarioError(f"{place}: {text}. Leave it out, or change config.json.")
        return copy.deepcopy(model)


@lru_cache(maxsize=1)
def _read_folder(folder: Path, files: tuple[tuple[str, Any], ...]) -> Any:
    """Return the model in a folder, cached until one of its `files` changes, because every node starts with it.

    Raises:
        DataDamaged: if weights cannot be read, or are missing.
    """
    from ddlsim.foundation.torch_state import forked_generators

    loads = needed("transformers", "hf", "model").AutoModel
    try:
        with forked_generators():
            options = {"local_files_only": True, "use_cache": False, "output_loading_info": True}
            model, about = loads.from_pretrained(folder, **options)
    except Exception as error:  # damaged files raise errors of any type
        raise DataDamaged(f"model.pretrained: {folder} cannot be read: {type(error).__name__}: {error}") from error
    lacking = sorted(name for name in about["missing_keys"] if not name.startswith("pooler."))  # that nothing uses
    if lacking:
        text = f"{folder} has no weights of {lacking[0]} ({len(lacking)} such), which config.json requires"
        raise DataDamaged(f"model.pretrained: {text}. Save it again by save_pretrained.")
    return model


def _refuse_unknown(keys: Mapping[str, Value], config: Any, usual: Any, architecture: str) -> None:
    """Raise ScenarioError if a configuration has stored a key that `usual` lacks, which no model reads."""
    unknown = next((key for key in keys if hasattr(config, key) and not hasattr(usual, key)), None)
    if unknown is not None:
        meant = did_you_mean(unknown, [*usual.to_dict(), *type(usual).attribute_map])
        raise ScenarioError(f"model.config: {architecture} has no key {unknown!r}.{meant}")


def _refuse_seeing_ahead(states: Any, architecture: str) -> None:
    """Raise ScenarioError if later tokens of a text change the states of earlier ones."""
    import torch

    was_training = states.training
    states.eval()
    with torch.no_grad():
        first = states(torch.zeros(1, 4, dtype=torch.int64))
        other = states(torch.tensor([[0, 0, 0, 1]]))
    states.train(was_training)
    if not torch.equal(first[:, :3], other[:, :3]):
        text = f"expected a causal model (gpt2, llama, ...), got {architecture}, which sees the tokens to predict"
        raise ScenarioError(f"model.architecture: {text}. For one label per text set predicts: last.")
