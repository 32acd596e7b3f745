"""Losses and predictions of one model after the other; see job_types.py for what the jobs ask."""

import numpy as np
import torch

from ddlsim.learning.backends.workers import WorkspaceOf
from ddlsim.learning.job_types import LossSpec, Tested, TestSpec, architecture_of
from ddlsim.learning.node_datasets import NodeDatasets


@torch.no_grad()
def losses_of(job: LossSpec, workspace_of: WorkspaceOf, data: NodeDatasets, chunk: int) -> list[float]:
    """Per model the mean over batches of the batch-mean loss, in eval mode; sums in float64."""
    images, labels = data.local(job.split, job.node)
    found, core, seen = [], None, None
    for model, batches in zip(job.models, job.batches, strict=True):
        workspace = workspace_of(architecture_of(model))
        if len(model) > 1 and model[0] is core and batches is seen:
            workspace.load(model[1:], start=core.size)
        else:
            workspace.load(model)
            workspace.load_local(job.local)
            core, seen = model[0], batches
            rows = torch.from_numpy(np.concatenate(batches)).to(images.device)
            features = torch.cat([workspace.features(images[part]) for part in rows.split(chunk)])
        losses = data.loss(workspace.outputs(features, images), labels[rows], reduction="none")
        per_batch = losses.double().split([len(batch) for batch in batches])
        found.append(float(torch.stack([batch.mean() for batch in per_batch]).mean()))
    return found


@torch.no_grad()
def predictions_of(job: TestSpec, workspace_of: WorkspaceOf, data: NodeDatasets, chunk: int) -> list[Tested]:
    """Per model its confusion matrix (row: true class) and mean loss on the whole evaluation set."""
    images, labels = data.evaluation(job.split, job.cluster)
    classes = data.num_classes if data.task == "classification" else 0
    confusions = torch.zeros(len(job.models), classes * classes, dtype=torch.int64, device=labels.device)
    losses = torch.zeros(len(job.models), dtype=torch.float64, device=labels.device)
    for first in range(0, len(labels), chunk):
        x, y = images[first : first + chunk], labels[first : first + chunk]
        core = None
        for index, model in enumerate(job.models):
            workspace = workspace_of(architecture_of(model))
            if len(model) > 1 and model[0] is core:
                workspace.load(model[1:], start=core.size)
            else:
                workspace.load(model)
                workspace.load_local(job.local)
                core, features = model[0], workspace.features(x)
            outputs = workspace.outputs(features, x)
            if classes:
                pairs = (y * classes + outputs.argmax(-1)).flatten()
                confusions[index] += torch.bincount(pairs, minlength=classes * classes)
            losses[index] += data.loss(outputs, y, reduction="sum")
    tables = confusions.reshape(-1, classes, classes).cpu().numpy() if classes else [None] * len(job.models)
    return [(table, loss / len(labels)) for table, loss in zip(tables, losses.tolist(), strict=True)]
