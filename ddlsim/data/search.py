"""The search for files of data sets, in the user's folders and by download."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddlsim.foundation.errors import DataDamaged, DataMissing

DOWNLOAD_TIMEOUT_S = 20.0
"""Seconds to wait for a silent server; without a limit a machine that drops packets hangs for minutes."""
DOWNLOAD_AGAIN = "It may be cut or corrupted: delete it and get it again."


@dataclass(frozen=True)
class DataSearch:
    """Folders in which data are searched.

    Args:
        data_dir: searched first; then $DDLSIM_DATA, then ~/.cache/ddlsim.
        download: whether torchvision may download absent data into the first of these folders.
    """

    data_dir: Path | None = None
    download: bool = True

    def roots(self) -> dict[Path, str]:
        """Folders in order, each with the way in which it was named."""
        named = [
            (self.data_dir, "--data-dir"),
            (os.environ.get("DDLSIM_DATA"), "$DDLSIM_DATA"),
            (Path.home() / ".cache" / "ddlsim", "the cache"),
        ]
        roots: dict[Path, str] = {}
        for path, how in named:
            if path:
                roots.setdefault(Path(path).expanduser().absolute(), how)
        return roots

    def candidates(self, relative: Sequence[str]) -> Iterator[Path]:
        """Every relative path under every root, root by root, that exists."""
        for root in self.roots():
            for path in relative:
                with contextlib.suppress(OSError):
                    if (root / path).exists():
                        yield root / path

    def find(self, path: str, name: str, layout: str) -> Path:
        """Return the user's file or folder, from the working directory or one of the data folders.

        Args:
            path: as in the scenario.
            name: the data set, as in YAML.
            layout: its required contents, for the error.
        Raises:
            DataMissing: if it is in none of them.
        """
        here = Path(path).expanduser()
        if here.exists():
            return here.absolute()
        return self.obtain(name, [str(here)], f"data.path names {layout}")

    def obtain(self, name: str, wanted: Sequence[str], layout: str, get: Callable[[str], object] | None = None) -> Path:
        """Return the first of some files or folders that exists, downloaded if none does.

        Args:
            name, wanted, layout: as in `missing`.
            get: as in `fetch`; None: nothing can be downloaded.
        Raises:
            DataMissing: if it is in none of the folders and was not downloaded.
        """
        found, why = next(self.candidates(wanted), None), None
        if found is None and get is not None:
            why = self.fetch(get)
            found = None if why else next(self.candidates(wanted), None)
        if found is None:
            raise self.missing(name, wanted, layout, why)
        return found

    def fetch(self, get: Callable[[str], object]) -> str | None:
        """Download into the first root.

        Args:
            get: downloads into the folder in its argument.
        Returns:
            None if the download succeeded, else the reason why not.
        """
        if not self.download:
            return "downloading is switched off"
        root = next(iter(self.roots()))
        before = socket.getdefaulttimeout()
        try:
            root.mkdir(parents=True, exist_ok=True)
            socket.setdefaulttimeout(DOWNLOAD_TIMEOUT_S)
            get(str(root))
        except ImportError as error:
            return f"torchvision, which downloads, cannot be imported ({error}): pip install 'ddlsim[vision]'"
        except (OSError, RuntimeError, EOFError) as error:
            # URLError and timeouts are OSErrors; torchvision turns failed mirrors and checksums into RuntimeErrors
            return f"the download into {root} failed: {error}"
        finally:
            socket.setdefaulttimeout(before)
        return None

    def missing(self, name: str, wanted: Sequence[str], layout: str, why: str | None = None) -> DataMissing:
        """Return the error for a data set that is not on this machine.

        Args:
            name: the data set, as in YAML.
            wanted: the relative paths that were looked for in each folder.
            layout: required contents of the folders, a sentence.
            why: why it was not downloaded either; None if there is nothing to download.
        """
        folders = (f"  {root}  ({how}){'' if root.is_dir() else ', missing'}" for root, how in self.roots().items())
        lines = [
            f"data: {name} is not on this machine." + (f" It was not downloaded: {why}." if why else ""),
            *(f"Looked for {' or '.join(wanted)} in:", *folders, f"To get it: {layout}"),
            "Put it into one of these folders, or name its folder by --data-dir or $DDLSIM_DATA.",
            "To try without it: a scenario with a `fallback:` runs on that instead (unless --no-fallback); or add "
            "--set data.name=fashion-mnist-mini, which is inside the package.",
        ]
        return DataMissing("\n".join(lines))


def damaged(path: Path, what: str, advice: str = DOWNLOAD_AGAIN) -> DataDamaged:
    """Return the error for a file that exists but cannot be used, with advice."""
    return DataDamaged(f"{path} cannot be read: {what.rstrip('.')}. {advice}")
