"""From gradients of mini-batches to changed parameters: accumulation, proximal term, clipping, control variates, step.

In this order, as in a plain loop over batches:

1. gradients of `training.accumulate` mini-batches are averaged (of the last ones of a training, as many as there are);
2. the proximal term adds mu (w - w_0), w_0 being the parameters at the start of the training, as the gradient of
   mu / 2 |w - w_0|^2 in the loss (Li et al., "Federated optimization in heterogeneous networks", MLSys 2020);
3. `clip_norm` scales the gradient of a model whose L2 norm is larger down to it (torch.nn.utils.clip_grad_norm_), and
   `clip_value` cuts each value off (clip_grad_value_);
4. a control variate is added (SCAFFOLD's c - c_i): it corrects the sampled gradient, and is not clipped itself;
5. the optimizer steps, with the update's own learning rate; groups of parameters whose rate a user-defined optimizer
    has changed keep the ratio to the update's rate.

Tensors hold one model's parameters, or a row for each of many models: all of this works row by row.

Label smoothing: targets that are spread over all classes by a share (Szegedy et al., CVPR 2016).
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from ddlsim.kernels.matrices import uploaded
from ddlsim.learning.losses import Loss
from ddlsim.learning.optimizing.state import LiveState, Named, StackedState
from ddlsim.scenario.per_node import of_node
from ddlsim.scenario.sections import Training

CLIP_EPSILON = 1e-6
"""Added to a norm before division, as clip_grad_norm_ does."""


class Updates:
    """The optimizer of one training.

    Args:
        settings: scenario section `training`.
        named: (name in the module, columns of the flat vector, tensor) of the parameters. Tensors are changed in place.
        rates: learning rate per update.
        proximal: mu; 0 for no proximal term.
        control: per tensor row added to its gradient; None if nothing is added.
        state: the optimizer's state; None for a new optimizer.
        stacked: whether the first dimension of every tensor counts models.
        shares: with stacked models, the rate of each model as a share of the update's rate, [updates, N]; None: all
            models have the update's rate. For optimizers whose step is proportional to the rate.
        hidden: names of the hidden matrices, which some optimizers treat in another way.
    """

    def __init__(
        self,
        settings: Training,
        named: Named,
        rates: Sequence[float],
        proximal: float = 0.0,
        control: Sequence[torch.Tensor] | None = None,
        state: "LiveState | StackedState | None" = None,
        stacked: bool = False,
        shares: torch.Tensor | None = None,
        hidden: Collection[str] = (),
    ):
        self._settings = settings
        self._named = list(named)
        self._parameters = [tensor for _, _, tensor in self._named]
        self._rates = rates
        self._done = 0
        self._proximal = proximal
        self._start = [tensor.detach().clone() for tensor in self._parameters] if proximal else []
        self._control = control
        self._state = state
        self._stacked, self._shares_of_models = stacked, shares
        self._sums: list[torch.Tensor] = []
        self._summed = 0
        optimizer = settings.optimizer
        self._plain = optimizer.moments == () and not optimizer.weight_decay  # one fused update without state
        self._torch_optimizer: torch.optim.Optimizer | None = None
        if not self._plain:
            first = of_node(settings.learning_rate, 0)
            matrices = [tensor for name, _, tensor in self._named if name in hidden]
            self._pieces = self._in_pieces()
            self._torch_optimizer = optimizer.make(self._groups(), first, matrices)
            rates_made = [group.get("lr") for group in self._torch_optimizer.param_groups]
            if optimizer.moments is not None:
                fused = takes_fused_steps([piece for _, _, piece in self._pieces])
                for group in self._torch_optimizer.param_groups:
                    # the same numbers in few calls, so threads rarely wait for the interpreter
                    group |= {"fused": True, "foreach": False} if fused else {"foreach": not stacked or None}
            self._shares = [1.0 if rate is None else float(rate) / first for rate in rates_made]
            if isinstance(state, StackedState):
                pieces = [(rows, self._named[number][1], piece) for number, rows, piece in self._pieces]
                state.put_into(self._torch_optimizer, pieces)
            elif isinstance(state, LiveState):
                state.put_into(self._torch_optimizer, self._named)

    @torch.no_grad()
    def take(self, gradients: Sequence[torch.Tensor]) -> None:
        """Add the gradients of one more mini-batch; every `training.accumulate` of them make an update."""
        every = self._settings.accumulate
        if every == 1:
            self._step(list(gradients))
            return
        if self._sums:
            torch._foreach_add_(self._sums, list(gradients))
        else:
            self._sums = [gradient.clone() for gradient in gradients]
        self._summed += 1
        if self._summed == every:
            self._step_on_sums()

    @property
    def subtracts(self) -> bool:
        """Whether an update subtracts the gradient of one mini-batch times its rate, and nothing else."""
        settings = self._settings
        cut = settings.clip_norm is not None or settings.clip_value is not None
        return self._plain and not (self._proximal or cut or self._control is not None) and settings.accumulate == 1

    def next_rates(self, steps: int) -> torch.Tensor:
        """Count updates that are done elsewhere; return their rates, [N or 1, steps]."""
        rates = torch.tensor(self._rates[self._done : self._done + steps], dtype=torch.float32)
        rates = uploaded(rates, self._parameters[0].device)[None]
        if self._shares_of_models is not None:
            rates = rates * self._shares_of_models[self._done : self._done + steps].T
        self._done += steps
        return rates

    def keep_first(self, count: int) -> None:
        """Continue with the first models alone, of those that are stacked; accumulation must have ended."""
        if count == len(self._parameters[0]):
            return
        self._parameters = [tensor[:count] for tensor in self._parameters]
        self._start = [tensor[:count] for tensor in self._start]
        self._control = self._control and [tensor[:count] for tensor in self._control]
        if self._shares_of_models is not None:
            self._shares_of_models = self._shares_of_models[:, :count]
        if self._torch_optimizer is not None:
            left = [each for each in self._pieces if each[1].start < count]
            first = {id(piece): piece[: count - rows.start] for _, rows, piece in left}
            self._pieces = [(number, rows, first[id(piece)]) for number, rows, piece in left]
            state, self._torch_optimizer.state = self._torch_optimizer.state, defaultdict(dict)
            for tensor, kept in state.items():
                if (piece := first.get(id(tensor))) is not None:
                    of_rows = {key: _first_rows(value, tensor.shape, len(piece)) for key, value in kept.items()}
                    self._torch_optimizer.state[piece] = of_rows
            for group in self._torch_optimizer.param_groups:
                group["params"] = [first[id(tensor)] for tensor in group["params"] if id(tensor) in first]

    @torch.no_grad()
    def finish(self) -> None:
        """After the last mini-batch."""
        if self._summed:
            self._step_on_sums()
        if self._torch_optimizer is not None and isinstance(self._state, LiveState):
            self._state.take_from(self._torch_optimizer, self._named)

    def _step_on_sums(self) -> None:
        torch._foreach_div_(self._sums, self._summed)
        sums, self._sums, self._summed = self._sums, [], 0
        self._step(sums)

    def _step(self, gradients: list[torch.Tensor]) -> None:
        shares = self._shares_of_models
        before = [] if shares is None else [parameter.clone() for parameter in self._parameters]
        self._step_by(self._corrected(gradients), self._rates[self._done])
        if shares is not None:
            for parameter, start in zip(self._parameters, before, strict=True):
                torch.lerp(start, parameter, shares[self._done].view(-1, *[1] * (start.dim() - 1)), out=parameter)
        self._done += 1

    def _step_by(self, gradients: list[torch.Tensor], rate: float) -> None:
        if self._torch_optimizer is None:
            torch._foreach_add_(self._parameters, gradients, alpha=-rate)
            return
        for group, share in zip(self._torch_optimizer.param_groups, self._shares, strict=True):
            group["lr"] = rate * share
        for number, rows, piece in self._pieces:
            piece.grad = gradients[number][rows].contiguous()  # as fused steps need it
        self._torch_optimizer.step()
        for _, _, piece in self._pieces:
            piece.grad = None  # its memory is free for the next gradients

    def _corrected(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        settings = self._settings
        if self._proximal:
            pairs = zip(gradients, self._parameters, self._start, strict=True)
            gradients = [gradient + self._proximal * (now - start) for gradient, now, start in pairs]
        if settings.clip_norm is not None:
            gradients = clipped_by_norm(gradients, settings.clip_norm, self._stacked)
        if settings.clip_value is not None:
            gradients = [gradient.clamp(-settings.clip_value, settings.clip_value) for gradient in gradients]
        if self._control is not None:
            gradients = [gradient + own for gradient, own in zip(gradients, self._control, strict=True)]
        return gradients

    def _in_pieces(self) -> list[tuple[int, Any, torch.Tensor]]:
        """Return the tensors that the optimizer changes: number of a parameter, its rows, and their values.

        It counts the steps of each tensor, so stacked models that have done other numbers of steps are pieces apart.
        """
        if not self._stacked:
            return [(number, ..., tensor) for number, tensor in enumerate(self._parameters)]
        all_rows = [slice(0, len(self._parameters[0]))]
        runs = self._state.runs if isinstance(self._state, StackedState) else all_rows
        return [(number, rows, tensor[rows]) for number, tensor in enumerate(self._parameters) for rows in runs]

    def _groups(self) -> "list[torch.Tensor] | list[dict]":
        """Return one group of all parameters, or a group that decays and one that does not."""
        pieces = [piece for _, _, piece in self._pieces]
        if self._settings.weight_decay_on == "all":
            return pieces
        weights = [piece for piece in pieces if piece.dim() - self._stacked > 1]
        others = [piece for piece in pieces if piece.dim() - self._stacked <= 1]
        groups: list[dict] = [{"params": weights}, {"params": others, "weight_decay": 0.0}]
        return [group for group in groups if group["params"]]


def takes_fused_steps(parameters: Sequence[torch.Tensor]) -> bool:
    """Whether an optimizer with moments steps in one kernel: on a GPU, where it reads and writes each value once."""
    return all(parameter.is_cuda and parameter.is_contiguous() for parameter in parameters)


def _first_rows(value: Any, shape: torch.Size, count: int) -> Any:
    """The first rows of a value of an optimizer's state that has a row per model."""
    return value[:count] if isinstance(value, torch.Tensor) and value.shape == shape else value


def clipped_by_norm(gradients: Sequence[torch.Tensor], most: float, stacked: bool = False) -> list[torch.Tensor]:
    """Gradients scaled down to an L2 norm of at most `most` over all tensors, of each model where they are stacked."""
    if stacked:
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
    else:
        norms = torch.stack(torch._foreach_norm(list(gradients))).norm()
    scale = (most / (norms + CLIP_EPSILON)).clamp(max=1.0)
    if not stacked:
        return list(torch._foreach_mul(list(gradients), scale))
    return [gradient * scale.view(-1, *[1] * (gradient.dim() - 1)) for gradient in gradients]


def updates_of(batches: int, accumulate: int) -> int:
    """Return the number of updates of a training on `batches` mini-batches."""
    return -(-batches // accumulate)


def training_loss(loss: Loss, label_smoothing: float) -> Loss:
    """Return the loss that training minimizes: the task's loss, with smoothed labels if requested.

    Cross-entropy with such targets is (1 - share) times the plain one and share times the mean of -log p over classes.

    Args:
        loss: of a classification; any, if labels are not smoothed.
        label_smoothing: the share, 0 up to below 1.
    """
    if not label_smoothing:
        return loss

    def smoothed(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        evenly = -F.log_softmax(outputs, dim=-1).mean()
        return (1 - label_smoothing) * loss(outputs, labels) + label_smoothing * evenly

    return smoothed
