"""Modules for sequences of token ids that PyTorch computes alone with its fused kernels, and stacked with plain ones.

The models of many nodes run together, as tensors of another class (ddlsim/learning/stacking) or under torch.func.vmap.
Neither has a rule for cuDNN's LSTM, and vmap has none for fused attention; in these cases the same sums are written
out.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def transformed() -> bool:
    """Whether torch.func transforms the computation (many models run as one)."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def of_torch(tensor: object) -> bool:
    """Whether a tensor is of torch's own classes, for which fused kernels are made."""
    return type(tensor) in (torch.Tensor, nn.Parameter)


class LastPosition(nn.Module):
    """Features [n, T, D] -> the features of the last position [n, D]."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features[:, -1]


class MeanOverPositions(nn.Module):
    """Features [n, T, D] -> their mean over positions [n, D]."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features.mean(dim=1)


class LSTMLayers(nn.Module):
    """Stacked LSTM layers: [n, T, D] -> the states of the last layer at every position, [n, T, units].

    Args:
        inputs: D.
        units: per layer.
        layers: number of layers.
    """

    def __init__(self, inputs: int, units: int, layers: int):
        super().__init__()
        self.cells = nn.LSTM(inputs, units, layers, batch_first=True)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        if of_torch(sequence) and of_torch(self.cells.weight_hh_l0) and not transformed():
            return self.cells(sequence)[0]
        for layer in range(self.cells.num_layers):
            parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            sequence = _lstm_layer(sequence, *(getattr(self.cells, f"{part}_l{layer}") for part in parts))
        return sequence


def _lstm_layer(
    sequence: torch.Tensor, of_input: torch.Tensor, of_state: torch.Tensor, bias: torch.Tensor, more_bias: torch.Tensor
) -> torch.Tensor:
    """One layer over [n, T, D], written out as torch.nn.LSTM documents it."""
    from_inputs = F.linear(sequence, of_input, bias + more_bias)
    hidden = cell = from_inputs.new_zeros(len(sequence), of_state.shape[1])
    states = []
    for position in range(sequence.shape[1]):
        gates = from_inputs[:, position] + F.linear(hidden, of_state)
        enter, forget, candidate, leave = gates.chunk(4, dim=1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        states.append(hidden)
    return torch.stack(states, dim=1)


class CausalAttention(nn.Module):
    """Multi-head self-attention of every position to itself and those before it, [n, T, width] -> the same.

    Args:
        width: of the features.
        heads: a divisor of width.
        dropout: share of outputs dropped while training.
    """

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.into = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        count, length, width = features.shape
        shape = (count, length, self.heads, width // self.heads)
        query, key, value = (each.reshape(shape).transpose(1, 2) for each in self.into(features).chunk(3, dim=2))
        if transformed():
            scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
            later = torch.ones(length, length, dtype=torch.bool, device=features.device).triu(1)
            found = scores.masked_fill(later, -torch.inf).softmax(dim=-1) @ value
        else:
            found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.drop(self.out(found.transpose(1, 2).reshape(count, length, width)))


class Block(nn.Module):
    """A transformer block with LayerNorm before attention and before the two linear layers (GPT-2, with exact GELU).

    Args:
        width: of the features.
        heads: a divisor of width.
        dropout: share of outputs dropped while training.
        recomputed: whether training keeps only the input, and computes the activations again for the backward pass.
    """

    def __init__(self, width: int, heads: int, dropout: float, recomputed: bool = False):
        super().__init__()
        self.recomputed = recomputed
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = CausalAttention(width, heads, dropout)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        # transformed or stacked, the block would be computed again with other parameters than the first time
        plain = of_torch(features) and of_torch(self.narrow.weight) and not transformed()
        if self.recomputed and plain and torch.is_grad_enabled():
            return checkpoint(self._outputs, features, use_reentrant=False, preserve_rng_state=False)
        return self._outputs(features)

    def _outputs(self, features: torch.Tensor) -> torch.Tensor:
        features = features + self.attention(self.norm1(features))
        return features + self.drop(self.narrow(F.gelu(self.widen(self.norm2(features)))))


class TokensAndPositions(nn.Module):
    """Token ids [n, T] -> learned embeddings of tokens and positions, added, [n, T, width].

    Args:
        tokens: number of different tokens.
        context: most positions.
        width: of the features.
    """

    def __init__(self, tokens: int, context: int, width: int):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(context, width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.tokens(ids) + self.positions.weight[: ids.shape[1]]


def initialize_as_gpt2(module: nn.Module, layers: int) -> None:
    """Draw normal weights of deviation 0.02, or 0.02 / sqrt(2 layers) if they add to the residual stream; biases 0."""
    for name, each in module.named_modules():
        if isinstance(each, nn.Linear | nn.Embedding):
            adds = name.endswith((".out", ".narrow"))
            nn.init.normal_(each.weight, std=0.02 / (math.sqrt(2 * layers) if adds else 1))
        if isinstance(each, nn.Linear):
            nn.init.zeros_(each.bias)


class HiddenStates(nn.Module):
    """Token ids [n, T] -> the last hidden states [n, T, D] of a model of Hugging Face's transformers."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens).last_hidden_state
