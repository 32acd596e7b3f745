"""The contract of a data set that a scenario can name."""

from typing import TYPE_CHECKING, Any, ClassVar

from ddlsim.part import Part

if TYPE_CHECKING:
    from ddlsim.data.dataset import DataSearch, Dataset


class DataSettings(Part):
    """Base of the entries of DATASETS: frozen dataclasses that define `load`, or `generate` where `generated`.

    `num_samples`, `image_shape` and `num_classes` let a network-only run do without reading the data; give all or none.
    """

    task: Any = "classification"
    """What is learned unless the scenario's `task` says otherwise: the name of an entry of TASKS, or one itself; a key
    of the scenario where a subclass makes it a field."""

    generated: ClassVar[bool] = False
    """Whether it is made from the scenario's seed; false: it is read."""

    from_python: ClassVar[bool] = False
    """Whether Python code gives its samples; no file can name it then."""

    may_hold_images: ClassVar[bool] = True
    """Whether its samples are, or may turn out to be, images; false: they are token ids or rows of features."""

    own_validation: ClassVar[bool] = False
    """Whether it comes with a validation set."""

    overlap: str | None = None
    """How its training samples share values with each other, as a clause for messages, so that what is set aside of
    them would be trained on all the same; None: they do not."""

    sample_dtype: ClassVar[str] = "float32"
    """numpy's name of the type of its samples, as nodes get them."""

    num_samples: Any = None
    """Training and test samples, (int, int); None: known only when it has been read."""

    image_shape: Any = None
    """Shape of one sample, (C, H, W) of images; None: known only when it has been read."""

    num_classes: Any = None
    """Number of labels; None: known only when it has been read."""

    label_shape: Any = ()
    """Shape of one sample's labels, where `num_samples` is given; () of a single one."""

    num_tokens: Any = None
    """How many different tokens samples consist of; None: they are no tokens, or it is known only when read."""

    def domains_for(self, num_clusters: int) -> int | None:
        """How many domains it has for this many clusters; None: it has none."""
        return None

    def load(self, search: "DataSearch") -> "Dataset":
        """The data set, read from where it is.

        Raises:
            DataMissing: if it is nowhere. DataDamaged: if it cannot be read.
        """
        raise NotImplementedError(f"{type(self).__name__} must define load(search)")

    def generate(self, nodes: Any, seed: int) -> "Dataset":
        """The data set, made for the scenario section `nodes` from a seed."""
        raise NotImplementedError(f"{type(self).__name__} must define generate(nodes, seed)")
