"""Groups of labels by name, for partitions whose clusters differ in their labels.

Sources: CIFAR-10's vehicles and animals as in Listo Zec et al., "Decentralized adaptive clustering of deep nets", 2022;
CIFAR-100 in three groups of superclasses as in Hagander and Ihre-Thomason, "With a little help from my friends",
master's thesis, Lund 2024, table A.2. The code behind the published numbers takes the labels to be sorted by superclass
(superclass 0 has labels 0 to 4, and so on), though torchvision sorts them by name, so its groups are no superclasses;
`cifar100_published` are those groups, worked out from the table and that rule.
"""

CIFAR100_SUPERCLASSES: tuple[tuple[int, ...], ...] = (
    (4, 30, 55, 72, 95),  # aquatic mammals
    (1, 32, 67, 73, 91),  # fish
    (54, 62, 70, 82, 92),  # flowers
    (9, 10, 16, 28, 61),  # food containers
    (0, 51, 53, 57, 83),  # fruit and vegetables
    (22, 39, 40, 86, 87),  # household electrical devices
    (5, 20, 25, 84, 94),  # household furniture
    (6, 7, 14, 18, 24),  # insects
    (3, 42, 43, 88, 97),  # large carnivores
    (12, 17, 37, 68, 76),  # large man-made outdoor things
    (23, 33, 49, 60, 71),  # large natural outdoor scenes
    (15, 19, 21, 31, 38),  # large omnivores and herbivores
    (34, 63, 64, 66, 75),  # medium-sized mammals
    (26, 45, 77, 79, 99),  # non-insect invertebrates
    (2, 11, 35, 46, 98),  # people
    (27, 29, 44, 78, 93),  # reptiles
    (36, 50, 65, 74, 80),  # small mammals
    (47, 52, 56, 59, 96),  # trees
    (8, 13, 48, 58, 90),  # vehicles 1
    (41, 69, 81, 85, 89),  # vehicles 2
)
"""The labels (torchvision's, sorted by name) of each superclass."""

THREE_WORLDS = ((0, 1, 7, 8, 11, 12, 13, 14, 15, 16), (2, 3, 4, 10, 17), (5, 6, 9, 18, 19))
"""Superclasses of the thesis's three clusters: animals and people; plants, food and nature; things and vehicles."""

LABEL_GROUPS: dict[str, tuple[tuple[int, ...], ...]] = {
    "vehicles_animals": ((0, 1, 8, 9), (2, 3, 4, 5, 6, 7)),
    "cifar100_superclasses": tuple(
        tuple(sorted(label for group in groups for label in CIFAR100_SUPERCLASSES[group])) for groups in THREE_WORLDS
    ),
    "cifar100_published": tuple(
        tuple(5 * group + number for group in groups for number in range(5)) for groups in THREE_WORLDS
    ),
}
"""Name -> per cluster its labels."""
