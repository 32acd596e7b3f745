"""Models over token ids: a stacked LSTM, a small GPT, the mean of embeddings. The head makes the logits.

Sources: the LSTM's default is LEAF's for Shakespeare (Caldas et al., "LEAF: a benchmark for federated settings", 2018:
embedding of 8, two layers of 256 units); the GPT is GPT-2's block (Radford et al., "Language models are unsupervised
multitask learners", 2019) with its initialization; the mean of embeddings is fastText's (Joulin et al., "Bag of tricks
for efficient text classification", 2017) without n-grams. Difference: by default the output layer does not share the
embedding's weights, since the embedding is part of the core and the output layer is the head.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal, Self

from annotated_types import Ge, Lt

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import Count, UnitCount
from ddlsim.models.base import ImageShape, ModelSettings

if TYPE_CHECKING:
    from torch import nn

    from ddlsim.models.split import SplitModel

UNKNOWN_TOKENS = 256
"""Number of tokens if neither scenario nor data gives it: bytes."""


@dataclass(frozen=True, kw_only=True)
class TextModel(ModelSettings):
    """Base of models over token ids.

    Args:
        tokens: number of different tokens; null: the data's.
        predicts: each: an output at every position; last: one, after the last position; null for the one that fits the
            labels.
    """

    tokens: Count | None = None
    predicts: Literal["each", "last"] | None = None

    def fitted(self, num_tokens: int | None, label_shape: tuple[int, ...]) -> Self:
        """Return the model with the number of tokens and the kind of prediction filled in.

        Raises:
            ScenarioError: if the data has more tokens than the model.
        """
        if self.tokens is not None and num_tokens is not None and num_tokens > self.tokens:
            text = f"expected at least {num_tokens}, the tokens of the data, got {self.tokens}"
            raise ScenarioError(f"model.tokens: {text}. Raise it or leave it out.")
        predicts = self.predicts or ("each" if label_shape else "last")
        return replace(self, tokens=self.tokens or num_tokens, predicts=predicts)

    def check(self, image_shape: ImageShape) -> None:
        """Sequences of ids [T]."""
        if len(image_shape) != 1:
            text = f"{type(self).__name__} takes sequences of token ids [T], the data has samples {list(image_shape)}"
            raise ScenarioError(f"model: {text}. Choose another model, or data of texts (shakespeare, ag_news).")

    def _whole(self, layers: "list[nn.Module]", features: int, num_classes: int) -> "SplitModel":
        """The model of a core's layers, whose last one returns [n, T, features]."""
        from torch import nn

        from ddlsim.models.sequences import LastPosition
        from ddlsim.models.split import SplitModel

        last = [LastPosition()] if self.predicts == "last" else []
        return SplitModel(nn.Sequential(*layers, *last), nn.Linear(features, num_classes))


@dataclass(frozen=True, kw_only=True)
class LSTM(TextModel):
    """An embedding and stacked LSTM layers; LEAF's for Shakespeare by default.

    Args:
        layers: of LSTM cells.
        units: per layer.
        embedding: numbers per token.
    """

    layers: Count = 2
    units: UnitCount = 256
    embedding: UnitCount = 8

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torch's default initialization."""
        from torch import nn

        from ddlsim.models.sequences import LSTMLayers

        self.check(image_shape)
        tokens = nn.Embedding(self.tokens or UNKNOWN_TOKENS, self.embedding)
        return self._whole([tokens, LSTMLayers(self.embedding, self.units, self.layers)], self.units, num_classes)


@dataclass(frozen=True, kw_only=True)
class EmbeddingBag(TextModel):
    """The mean of learned embeddings of all tokens, whatever their order; for kinds of texts (fastText).

    Padding (id 0) has an embedding too, and counts in the mean, unlike in fastText, which has no padding.

    Args:
        width: numbers per token.
    """

    width: UnitCount = 64

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torch's default initialization."""
        from torch import nn

        from ddlsim.models.sequences import MeanOverPositions
        from ddlsim.models.split import SplitModel

        self.check(image_shape)
        tokens = nn.Embedding(self.tokens or UNKNOWN_TOKENS, self.width)
        return SplitModel(nn.Sequential(tokens, MeanOverPositions()), nn.Linear(self.width, num_classes))


@dataclass(frozen=True, kw_only=True)
class GPT(TextModel):
    """A small transformer decoder, GPT-2's blocks with the exact GELU in the place of its approximation by tanh.

    Args:
        layers: of blocks.
        heads: of attention, a divisor of width.
        width: of the features.
        context: most positions; null: as long as the data's samples are.
        dropout: share of values dropped after attention and after each block's linear layers, 0 to below 1.
        tie_word_embeddings: whether the output layer is the embedding's matrix, without a bias, as in GPT-2. The model
            then has no head apart from its core.
        activation_checkpointing: whether training keeps only the inputs of blocks and computes their activations again
            in the backward pass: less memory, more operations, the same gradients. Nodes train one by one, without
            dropout.
    """

    layers: Count = 4
    heads: Count = 4
    width: UnitCount = 128
    context: Count | None = None
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    tie_word_embeddings: bool = False
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ScenarioError(f"heads: expected a divisor of width ({self.width}), got {self.heads}.")
        if self.activation_checkpointing and self.dropout:
            text = f"expected dropout 0, got {self.dropout:g}: the second pass would draw another mask"
            raise ScenarioError(f"activation_checkpointing: {text}. Set one of them to its default.")

    @property
    def has_core(self) -> bool:
        """Whether the core is apart from the head, which needs weights of its own."""
        return not self.tie_word_embeddings

    def check(self, image_shape: ImageShape) -> None:
        """Sequences of ids [T], T at most the context."""
        super().check(image_shape)
        if self.context is not None and image_shape[0] > self.context:
            text = f"expected at least {image_shape[0]}, the length of samples, got {self.context}"
            raise ScenarioError(f"model.context: {text}. Raise it or leave it out.")

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, GPT-2's initialization."""
        from torch import nn

        from ddlsim.models.sequences import Block, TokensAndPositions, initialize_as_gpt2
        from ddlsim.models.split import SplitModel

        self.check(image_shape)
        tokens, context = self.tokens or UNKNOWN_TOKENS, self.context or image_shape[0]
        keys = self.width, self.heads, self.dropout, self.activation_checkpointing
        embeddings, blocks = TokensAndPositions(tokens, context, self.width), [Block(*keys) for _ in range(self.layers)]
        model = self._whole([embeddings, *blocks, nn.LayerNorm(self.width)], self.width, num_classes)
        initialize_as_gpt2(model, self.layers)
        if not self.tie_word_embeddings:
            return model
        if num_classes != tokens:
            text = f"expected as many outputs as tokens ({tokens}), got {num_classes}"
            raise ScenarioError(f"model.tie_word_embeddings: {text}. Set it to false.")
        model.head = nn.Linear(self.width, tokens, bias=False)
        model.head.weight = embeddings.tokens.weight
        return SplitModel(model, nn.Identity())
