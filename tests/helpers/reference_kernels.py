"""Reference implementations of the kernels in plain torch and float64: slow and simple."""

import torch


def merge(params: torch.Tensor, mixing: torch.Tensor) -> torch.Tensor:
    """mixing [M, N] @ params [N, P]; a row of zeros keeps params' row."""
    kept = (mixing == 0).all(dim=1)
    merged = mixing.double() @ params.double()
    merged[kept] = params.double()[kept.nonzero().flatten()]
    return merged


def cosine(params: torch.Tensor, reference: torch.Tensor | None = None) -> torch.Tensor:
    """Cosines [N, N] of params [N, P] - reference; norms are at least 1e-8."""
    vectors = params.double() if reference is None else params.double() - reference.double()
    norms = vectors.norm(dim=1).clamp_min(1e-8)
    return (vectors @ vectors.T) / (norms[:, None] * norms[None, :])


def sqdist(params: torch.Tensor) -> torch.Tensor:
    """Squared distances [N, N], row by row from the differences."""
    vectors = params.double()
    return torch.stack([((vectors - one) ** 2).sum(dim=1) for one in vectors])


def inverse_l2(params: torch.Tensor) -> torch.Tensor:
    """1 / (distance + 1e-6) [N, N] with a zero diagonal."""
    return (1 / (sqdist(params).sqrt() + 1e-6)).fill_diagonal_(0)


def class_cosine(params: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Mean over classes of the cosines of params viewed as [N, C, D]."""
    classes = params.view(params.shape[0], num_classes, -1)
    return torch.stack([cosine(classes[:, label]) for label in range(num_classes)]).mean(dim=0)


def project_simplex(rows: torch.Tensor) -> torch.Tensor:
    """Euclidean projection of rows [R, D] on the probability simplex, by sorting (Held, Wolfe and Crowder 1974)."""
    values = rows.double()
    ordered = values.sort(dim=1, descending=True).values
    counts = torch.arange(1, values.shape[1] + 1)
    thresholds = (ordered.cumsum(dim=1) - 1) / counts
    support = (ordered > thresholds).sum(dim=1, keepdim=True)
    return (values - thresholds.gather(1, support - 1)).clamp_min(0)


def trimmed_mean(params: torch.Tensor, cut: int, kept: torch.Tensor | None = None) -> torch.Tensor:
    """Means [P] of the columns of params [N, P] without their `cut` lowest and highest values, and with `kept` [P]."""
    left = params.double().sort(dim=0).values[cut : len(params) - cut]
    return left.mean(dim=0) if kept is None else torch.cat([left, kept.double()[None]]).mean(dim=0)
