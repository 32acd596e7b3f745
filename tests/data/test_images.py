import numpy as np
import pytest

from ddlsim.data import Arrays, DataSearch
from ddlsim.data.hugging_face import HuggingFace
from ddlsim.data.images import ImageFolder, Imagenette
from ddlsim.data.pixels import is_mapped
from ddlsim.foundation.errors import DataDamaged, DataMissing


@pytest.fixture
def picture():
    from PIL import Image

    def save(path, width=8, height=8, color=(255, 0, 0)):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (width, height), color).save(path)

    return save


@pytest.fixture
def search(tmp_path, monkeypatch):
    monkeypatch.delenv("DDLSIM_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return DataSearch(tmp_path, download=False)


def test_folders_are_classes_in_sorted_order(tmp_path, picture, search):
    for split, count in (("train", 3), ("test", 1)):
        for index in range(count):
            picture(tmp_path / "mine" / split / "zebra" / f"{index}.png", color=(0, 0, 255))
            picture(tmp_path / "mine" / split / "ant" / f"{index}.png")
    data = ImageFolder(path="mine", size=4).load(search)
    assert data.train_labels.tolist() == [0, 0, 0, 1, 1, 1] and data.num_classes == 2
    assert data.train_images.shape == (6, 4, 4, 3)
    assert data.train_images[5, 2, 2].tolist() == [0, 0, 255]


def test_an_unsplit_folder_is_split_class_by_class(tmp_path, picture, search):
    for name in ("ant", "bee"):
        for index in range(10):
            picture(tmp_path / "mine" / name / f"{index}.png")
    data = ImageFolder(path="mine", size=4, test_fraction=0.3).load(search)
    assert np.bincount(data.train_labels).tolist() == [7, 7]
    assert np.bincount(data.test_labels).tolist() == [3, 3]


def test_split_by_folder_keeps_a_folder_together(tmp_path, picture, search):
    for folder in range(4):
        for index in range(5):
            picture(tmp_path / "mine" / "ant" / str(folder) / f"{index}.png", color=(folder, 0, 0))
    data = ImageFolder(path="mine", size=4, test_fraction=0.25, split_by="folder").load(search)
    assert len(data.test_labels) == 5
    assert len(np.unique(data.test_images[..., 0])) == 1
    assert not set(np.unique(data.test_images[..., 0])) & set(np.unique(data.train_images[..., 0]))


def test_split_by_folder_keeps_deeper_folders_together(tmp_path, picture, search):
    for folder in range(4):
        for day in range(3):
            for index in range(2):
                place = tmp_path / "mine" / "ant" / str(folder) / f"day {day}" / f"{index}.png"
                picture(place, color=(folder, 0, 0))
    data = ImageFolder(path="mine", size=4, test_fraction=0.25, split_by="folder").load(search)
    assert len(data.test_labels) == 6
    assert not set(np.unique(data.test_images[..., 0])) & set(np.unique(data.train_images[..., 0]))


@pytest.mark.parametrize("width, height", [(160, 213), (200, 160), (64, 64), (161, 160), (90, 41)])
def test_resizing_equals_torchvision(tmp_path, search, width, height):
    from PIL import Image
    from torchvision.transforms import CenterCrop, Compose, Resize

    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    for split in ("train", "test"):
        path = tmp_path / "mine" / split / "ant" / "one.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(pixels).save(path)
    expected = np.asarray(Compose([Resize(64), CenterCrop(64)])(Image.fromarray(pixels)))
    assert np.array_equal(ImageFolder(path="mine").load(search).train_images[0], expected)


def test_unreadable_image_is_named(tmp_path, picture, search):
    picture(tmp_path / "mine" / "train" / "ant" / "one.png")
    picture(tmp_path / "mine" / "test" / "ant" / "one.png")
    (tmp_path / "mine" / "train" / "ant" / "two.jpg").write_bytes(b"\xff\xd8\xff cut")
    with pytest.raises(DataDamaged, match=r"two\.jpg cannot be read"):
        ImageFolder(path="mine").load(search)


def test_a_class_without_images_is_named(tmp_path, picture, search):
    picture(tmp_path / "mine" / "train" / "ant" / "one.png")
    (tmp_path / "mine" / "test" / "ant").mkdir(parents=True)
    with pytest.raises(DataDamaged, match="ant: no image"):
        ImageFolder(path="mine").load(search)


def test_absent_folder_is_data_missing(search):
    with pytest.raises(DataMissing, match="elsewhere"):
        ImageFolder(path="elsewhere").load(search)


def test_imagenette_reads_train_and_val_of_the_160_pixel_folder(tmp_path, picture, search):
    for label in range(10):
        picture(tmp_path / "imagenette2-160" / "train" / f"n{label}" / "a.JPEG", 200, 160)
        picture(tmp_path / "imagenette2-160" / "val" / f"n{label}" / "b.JPEG", 160, 200)
    data = Imagenette().load(search)
    assert data.train_images.shape == (10, 64, 64, 3) and data.test_labels.tolist() == list(range(10))
    assert data.mean.tolist() == pytest.approx([0.485, 0.456, 0.406])


def test_imagenette_npz_of_another_size_is_refused(tmp_path, search):
    arrays = {"x": np.zeros((2, 32, 32, 3), np.uint8), "y": np.arange(2)}
    named = {f"{key}_{split}": arrays[key] for key in "xy" for split in ("train", "test")}
    np.savez(tmp_path / "imagenette.npz", **named)
    with pytest.raises(DataDamaged, match="64 x 64 x 3"):
        Imagenette().load(search)


def test_mapped_folder_is_converted_once_and_gives_equal_data(tmp_path, picture, search):
    for name, color in (("ant", (9, 0, 0)), ("bee", (0, 9, 0))):
        for index in range(5):
            picture(tmp_path / "mine" / name / f"{index}.png", color=color)
    read, mapped = (ImageFolder(path="mine", size=4, mapped=each).load(search) for each in (False, True))
    assert is_mapped(mapped.train_images) and mapped.sha256 == read.sha256
    (made,) = (tmp_path / "home" / ".cache" / "ddlsim" / "image-folder").glob("*/train.npy")
    before = made.stat().st_mtime_ns
    assert ImageFolder(path="mine", size=4, mapped=True).load(search).sha256 == read.sha256
    assert made.stat().st_mtime_ns == before
    picture(tmp_path / "mine" / "ant" / "0.png", color=(200, 0, 0))
    picture(tmp_path / "mine" / "ant" / "1.png", width=9, color=(200, 0, 0))
    assert ImageFolder(path="mine", size=4, mapped=True).load(search).sha256 != read.sha256


def test_class_missing_from_the_training_set_is_named(tmp_path, picture, search):
    for place in ("train/ant", "test/ant", "test/wasp"):
        picture(tmp_path / "mine" / place / "one.png")
    with pytest.raises(DataDamaged, match=r"test: expected only classes of .*train, got wasp as well"):
        ImageFolder(path="mine").load(search)


def gray(place, values):
    from PIL import Image

    for split in ("train", "test"):
        path = place / "mine" / split / "ant" / "one.tif"
        path.parent.mkdir(parents=True)
        Image.fromarray(values).save(path)


@pytest.mark.parametrize(("kind", "white"), [("<u2", 65535), (">u2", 65535), ("<i4", 255)])
def test_pictures_of_16_bits_are_scaled_to_8(tmp_path, search, kind, white):
    gray(tmp_path, np.array([[0, white // 5], [white // 5 * 3, white]], kind))
    images = ImageFolder(path="mine", size=2).load(search).train_images
    assert images[0].tolist() == [[[0] * 3, [51] * 3], [[153] * 3, [255] * 3]]


@pytest.mark.parametrize(("kind", "highest"), [("<i4", 256), ("<f4", 1)])
def test_pictures_of_32_bits_without_a_known_white_are_refused(tmp_path, search, kind, highest):
    gray(tmp_path, np.array([[0, 0], [0, highest]], kind))
    with pytest.raises(
        DataDamaged, match=rf"one\.tif: expected a picture of 8 or 16 bits.* values of 0 to {highest}\."
    ):
        ImageFolder(path="mine", size=2).load(search)


def test_a_portable_graymap_of_16_bits_is_scaled_to_8(tmp_path, search):
    for split in ("train", "test"):
        path = tmp_path / "mine" / split / "ant" / "one.pgm"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"P5\n1 1\n65535\n" + np.array(51 * 257, ">u2").tobytes())
    assert ImageFolder(path="mine", size=1).load(search).train_images.tolist() == [[[[51] * 3]]]


def test_hugging_face_pictures_are_scaled_to_8_bits():
    from PIL import Image

    settings = HuggingFace(path="saved", inputs=("image",), label="kind")
    assert settings._picture(Image.fromarray(np.full((1, 1), 257 * 9, np.uint16))).tolist() == [[[9] * 3]]


def test_hidden_desktop_files_are_ignored(tmp_path, picture, search):
    for split in ("train", "test"):
        for name in ("ant", "bee", ".ipynb_checkpoints", "__MACOSX"):
            picture(tmp_path / "mine" / split / name / "0.png")
        (tmp_path / "mine" / split / ".empty").mkdir()
        (tmp_path / "mine" / split / "ant" / "._0.png").write_bytes(b"no picture")
        picture(tmp_path / "mine" / split / "ant" / "__MACOSX" / "1.png")
        (tmp_path / "mine" / split / "bee" / ".DS_Store").write_bytes(b"")
    data = ImageFolder(path="mine", size=4).load(search)
    assert data.train_labels.tolist() == data.test_labels.tolist() == [0, 1] and data.num_classes == 2


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_by_their_exif_orientation(tmp_path, search, orientation):
    from PIL import Image

    shown = np.array([[0, 80], [160, 240]], np.uint8).repeat(8, axis=0).repeat(8, axis=1)
    undo = {1: shown, 2: shown[:, ::-1], 3: shown[::-1, ::-1], 4: shown[::-1], 5: shown.T}  # what a camera stores
    undo |= {6: np.rot90(shown), 7: shown[::-1, ::-1].T, 8: np.rot90(shown, -1)}
    exif = Image.Exif()
    exif[0x0112] = orientation
    for split in ("train", "test"):
        path = tmp_path / "mine" / split / "ant" / "0.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(np.ascontiguousarray(undo[orientation])).save(path, exif=exif)
    assert np.array_equal(ImageFolder(path="mine", size=16).load(search).train_images[0, :, :, 0], shown)
    opened = Image.open(path)
    assert np.array_equal(
        Arrays(train=[(opened, 0)], test=[(opened, 0)]).load(search).train_images[0], shown[..., None]
    )
