"""The files of the console as a node serves them, without a browser."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from app.api.console import COMMENT, FILES, POLICY, sent_of
from app.cli.root import application_for
from app.core.access.rules import Action
from scripts.vendored import differing
from tests.api.rig import Rig, running

ROOT = Path(__file__).parents[2]
OURS = [path for path in sorted(FILES.rglob("*.js")) if "vendor" not in path.parts]
SERVED = sorted(path.relative_to(FILES).as_posix() for path in FILES.rglob("*") if path.suffix in {".js", ".css"})
IMPORTED = re.compile(r'^(?:import|export)\b[^;]*?from\s+"([^"]+)"|^import "([^"]+)"', re.MULTILINE)
BANNED = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\("
    r"|new Function|DOMParser|srcdoc"
)
WIDTHS = re.compile(r"matchMedia|ResizeObserver|(?:inner|outer|client|offset|scroll)Width|visualViewport|\bscreen\.")
MOST_PACKED = 80_000
"""Bytes of all files that an open console loads, compressed: those of rare pages come when they are shown."""
MOST_OF_ALL = 95_000
"""Bytes of all files, compressed."""
MOST_OF_HOME = 35_000
"""Bytes of those files that Home needs before it shows something, compressed."""
MOST_FILES_OF_HOME = 14
"""The number of these files: over a slow line each six of them wait for one another."""


async def build_of(rig: Rig) -> str:
    found = re.search(r'data-build="([0-9a-f]{12})"', (await rig.http.get("/console/")).text)
    assert found is not None
    return found[1]


def names(source: Path) -> list[str]:
    return [one or other for one, other in IMPORTED.findall(source.read_text("utf-8"))]


@pytest.mark.parametrize("source", OURS, ids=lambda path: path.name)
def test_every_import_is_a_file_beside_it(source: Path) -> None:
    for name in names(source):
        assert name.startswith("."), name
        assert (source.parent / name).resolve().is_relative_to(FILES)
        assert (source.parent / name).is_file(), name


@pytest.mark.parametrize("source", OURS, ids=lambda path: path.name)
def test_no_script_knows_how_wide_a_page_is(source: Path) -> None:
    """The style sheet alone does: so a page that was made on a desktop is looked at as on a phone, too."""
    assert WIDTHS.findall(source.read_text("utf-8")) == []


@pytest.mark.parametrize("source", OURS, ids=lambda path: path.name)
def test_no_script_makes_markup_of_text_or_names_another_host(source: Path) -> None:
    text = source.read_text("utf-8")
    assert BANNED.findall(text) == []
    assert re.findall(r"https?://", text) == []
    assert re.findall(r"\bstyle=", text) == []  # which the policy refuses


def test_whether_somebody_may_is_asked_of_every_action() -> None:
    listed = re.search(r"ACTIONS = \[(.*?)\]", (FILES / "words.js").read_text("utf-8"))
    assert listed is not None
    assert set(re.findall(r'"(\w+)"', listed[1])) == set(Action)


def test_a_planted_ban_is_found() -> None:
    assert BANNED.findall("node.innerHTML = text")
    assert IMPORTED.findall('import {\n  a,\n} from "./b.js";\nimport "./c.js";') == [("./b.js", ""), ("", "./c.js")]


def test_the_pages_of_others_are_as_they_were_taken() -> None:
    assert differing() == []


VERB = re.compile(r"verb=\$\{\[(.*?)\]\} run=")
"""The words of the verb that a dialog shows."""
DECISIONS = {"approve", "refuse"}
"""The verbs in place of the word that a dialog takes from its decision."""


def test_every_verb_that_a_dialog_shows_is_there_with_its_options() -> None:
    texts = [source.read_text("utf-8") for source in OURS]
    shown = [re.findall(r'"([^"]+)"', one) for text in texts for one in VERB.findall(text)]
    assert len(shown) == sum(text.count("verb=${") for text in texts) > 10
    whole = get_command(application_for([]))
    for words in shown:
        at: Any = whole
        for word in words:
            if not word.startswith("--"):
                at = at.commands[word]
            else:
                assert word in {name for one in at.params for name in (*one.opts, *one.secondary_opts)}, words
        assert not hasattr(at, "commands") or set(at.commands) >= DECISIONS, words


class _Page(HTMLParser):
    """The attributes of a page, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.attributes: set[str] = set()
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}
        named = [value or "" for name, value in attrs if name in {"src", "href"}]
        self.loaded += [one for one in named if not one.startswith("data:")]


async def test_the_page_has_no_script_or_style_in_it_and_all_that_it_loads_is_there(rig: Rig) -> None:
    response = await rig.http.get("/console/")
    page = _Page(response.text)
    assert not {one for one in page.attributes if one.startswith("on") or one == "style"}
    home = needed(FILES / "app.js") | needed(FILES / "pages" / "home.js")
    ahead = {one.partition("/")[2] for one in page.loaded if one.endswith(".js") and "/" in one}
    assert ahead == {one.relative_to(FILES).as_posix() for one in home}  # else they come one after another
    for one in page.loaded:
        assert (await rig.http.get(f"/console/{one}")).status_code == 200, one
    assert response.headers["cache-control"] == "no-cache"
    assert "<code>homing overview</code>" in response.text.partition("<noscript>")[2].partition("</noscript>")[0]


async def test_every_file_is_kept_for_good_and_carries_the_policy(rig: Rig) -> None:
    build, size = await build_of(rig), 0
    for name in SERVED:
        path = "/console/boot.js" if name == "boot.js" else f"/console/{build}/{name}"
        response = await rig.http.get(path)
        assert response.status_code == 200, name
        assert code(response.content) == code((FILES / name).read_bytes())
        headers = response.headers
        assert headers["content-security-policy"] == POLICY.decode()
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
        assert ("immutable" in headers["cache-control"]) == (name != "boot.js")
        again = await rig.http.get(path, headers={"If-None-Match": headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        size += len(gzip.compress(response.content))
    assert size <= MOST_OF_ALL
    assert "require-trusted-types-for 'script'" in POLICY.decode()
    assert "unsafe" not in POLICY.decode()


def code(text: bytes) -> list[tuple[int, bytes]]:
    """The lines of a script that are neither empty nor a comment of one line, each with its number."""
    lines = enumerate(re.sub(rb"/\*\*(?:(?!\*/).)*\*/", _hollow, text, flags=re.DOTALL).split(b"\n"))
    return [(number, line.strip()) for number, line in lines if line.strip() and not line.strip().startswith(b"//")]


def _hollow(comment: re.Match[bytes]) -> bytes:
    return b"\n" * comment[0].count(b"\n")


@pytest.mark.parametrize("source", OURS, ids=lambda path: path.name)
def test_no_comment_on_lines_of_its_own_is_in_a_text(source: Path) -> None:
    text = source.read_bytes()
    assert [one[0] for one in COMMENT.finditer(text) if text[: one.start()].count(b"`") % 2] == []


def test_comments_on_lines_of_their_own_are_not_sent_and_casts_are() -> None:
    text = b"/** A.\n * B. */\n  // c\n/** @type {T} */ (d).e(); /** f */\n"
    assert COMMENT.sub(b"", text).split() == [*b"/** @type {T} */ (d).e(); /** f */".split()]


def test_an_open_console_loads_few_bytes() -> None:
    app = (FILES / "app.js").read_text("utf-8")
    ahead = {name for name, rare in re.findall(r'lazy\("([a-z-]+\.js)", "\w+"(, RARE)?\)', app) if not rare}
    assert len(ahead) > 10
    files = {FILES / name for name in ("boot.js", "index.html", "style.css")} | needed(FILES / "app.js")
    files = files.union(*(needed(FILES / "pages" / name) for name in ahead))
    assert sum(packed(one) for one in files) <= MOST_PACKED


def packed(source: Path) -> int:
    """The bytes of a file as it is sent, compressed."""
    name = source.relative_to(FILES).as_posix()
    return len(gzip.compress(sent_of(name, source.read_bytes()), mtime=0))


def needed(source: Path) -> set[Path]:
    """The script, and all that it imports."""
    found, rest = set[Path](), [source]
    while rest:
        one = rest.pop()
        if one not in found:
            found.add(one)
            rest += [(one.parent / name).resolve() for name in names(one)]
    return found


def test_home_is_shown_before_other_pages_are_loaded() -> None:
    files = {FILES / name for name in ("boot.js", "index.html", "style.css")}
    files |= needed(FILES / "app.js") | needed(FILES / "pages" / "home.js")
    assert {one.name for one in files if one.parent.name == "pages"} == {"home.js"}
    assert sum(packed(one) for one in files) <= MOST_OF_HOME
    assert len(files) <= MOST_FILES_OF_HOME


async def test_a_client_that_reads_no_gzip_gets_the_file_as_it_is(rig: Rig) -> None:
    plain = await rig.http.get("/console/boot.js", headers={"Accept-Encoding": "identity"})
    packed = await rig.http.get("/console/boot.js", headers={"Accept-Encoding": "gzip"})
    assert ("content-encoding" in plain.headers, packed.headers["content-encoding"]) == (False, "gzip")
    assert plain.content == packed.content


@pytest.mark.parametrize(
    "path",
    [
        "/console/000000000000/app.js",  # a page of another version
        "/console/{build}/index.html",
        "/console/{build}/vendor/README.md",
        "/console/{build}/../api/front.py",
        "/console/{build}/%2e%2e/api/front.py",
        "/console/nothing",
    ],
)
async def test_no_other_file_is_served(rig: Rig, path: str) -> None:
    assert (await rig.http.get(path.format(build=await build_of(rig)))).status_code == 404


async def test_browsers_are_led_to_the_console_and_programs_to_the_index(rig: Rig) -> None:
    browser = await rig.http.get("/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (browser.status_code, browser.headers["location"]) == (303, "console/")
    for accept in ("*/*", "application/json", "application/json, text/html"):
        assert (await rig.http.get("/", headers={"Accept": accept})).json()["links"]["console"] == "/console/"
    assert (await rig.http.get("/console")).headers["location"] == "console/"


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running() as one:
        yield one


@pytest.mark.long
def test_the_wheel_has_every_file(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, check=True, cwd=ROOT, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        inside = {name for name in wheel.namelist() if name.startswith("app/console/")}
    there = {path.relative_to(ROOT).as_posix() for path in FILES.rglob("*") if path.is_file()}
    assert inside == there
    assert not {name for name in inside if "axe" in name}
