"""The built documentation in a browser: accessible, nothing cut on a phone, and searched by the words that people type.

The site is that of docs/_build, or of the folder that COCOS_SITE names; .ci/run builds it and then runs these tests.
"""

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import pytest

SITE = Path(os.environ.get("COCOS_SITE", Path(__file__).parent.parent / "docs" / "_build"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# The doors, the groups and one page of each kind that is made.
MAIN = (
    *("index", "start", "concepts", "eps", "glossary", "faq", "related", "gallery", "notebooks"),
    *("howto/checkpoint", "howto/monitor", "howto/detectors", "howto/report", "howto/plots", "howto/loss"),
    *(
        "losses/index",
        "losses/ntxent",
        "api/index",
        "commands",
        "gallery/eps_curve",
        "notebooks/training",
    ),
)
# Words that people type, and the page that answers them.
SEARCHED = {
    "InfoNCE": "losses/ntxent",
    "hard negatives": "howto/columns",
    "temperature too low": "howto/temperature",
}
PHONE, DESK = 390, 1280
# Milliseconds that a page may take.
DEADLINE = 60_000


@pytest.fixture(scope="module")
def site():
    """Address of the site, on this machine."""
    if not (SITE / "index.html").is_file():
        pytest.skip(f"the documentation is not built in {SITE}")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    sync = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with sync.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(site, browser):
    """Open a page of the site in a tab."""
    contexts = []

    def go(page, width=DESK, scheme="light"):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        contexts[-1].set_default_timeout(DEADLINE)
        tab = contexts[-1].new_page()
        assert tab.goto(f"{site}/{page}", wait_until="load").ok
        return tab

    yield go
    for each in contexts:
        each.close()


def serious(tab):
    """What axe finds of weight, with the first element of each."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(tab).response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in {"serious", "critical"}]


@pytest.mark.parametrize("page", MAIN)
def test_axe_finds_nothing_serious(opened, page):
    assert serious(opened(f"{page}.html")) == []


@pytest.mark.parametrize(("page", "width"), [("index", PHONE), ("howto/monitor", PHONE), ("gallery", DESK)])
def test_axe_finds_nothing_serious_in_the_dark(opened, page, width):
    assert serious(opened(f"{page}.html", width, "dark")) == []


def test_axe_finds_what_is_wrong(opened):
    tab = opened("index.html")
    tab.evaluate("document.querySelector('main, body').insertAdjacentHTML('beforeend', '<img src=\"none.png\">')")
    assert [name for name, _ in serious(tab)] == ["image-alt"]


@pytest.mark.parametrize("page", MAIN)
def test_nothing_is_wider_than_a_phone(opened, page):
    tab = opened(f"{page}.html", PHONE)
    assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE
    wide = """Array.from(document.querySelectorAll('main img, article img, figure img'))
        .filter(each => each.getBoundingClientRect().right > innerWidth + 1).map(each => each.src)"""
    assert tab.evaluate(wide) == []


@pytest.mark.parametrize(("word", "page"), SEARCHED.items())
def test_search_finds_what_people_type(opened, word, page):
    tab = opened(f"search.html?q={word}")
    tab.wait_for_function("document.querySelectorAll('#search-results li a').length > 2")
    tab.wait_for_timeout(2000)  # results come one by one
    found = tab.evaluate("Array.from(document.querySelectorAll('#search-results li a')).map(each => each.href)")
    first = list(dict.fromkeys(each.partition("?")[0].partition("#")[0] for each in found))[:3]
    assert any(each.endswith(f"/{page}.html") for each in first), first
    assert not any("changelog" in each for each in first)
