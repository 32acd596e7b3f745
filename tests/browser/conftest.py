"""Chromium driven by playwright; tests are skipped if one of them is missing."""

import shutil

import pytest

OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install 'ddlsim[browser]'"
    )
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=OPTIONS)
        yield started
        started.close()
