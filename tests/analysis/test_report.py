"""The report: what stands in the page, and how it looks in a real browser on a phone, a desktop and paper."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Self

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from app.analysis.contracts import TABLES
from app.analysis.report.page import render
from app.analysis.report.text import THIN
from app.analysis.rollup import STAGES
from tests.analysis.report_output import made, write_report
from tests.analysis.report_rows import Sample
from tests.chromium import chromium_binary

FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)
SAMPLES = {
    "day": Sample(),
    "hour": Sample(hours=1, commands=300, before=False),
    "months": Sample(hours=2000, commands=900, missing=frozenset({3, 4, 5})),
    "hostile": Sample(hostile=True),
    "empty": None,
}
SERIES = {"light": (0, 114, 178), "dark": (74, 168, 224)}
"""The colour of the latency in style.css."""
STYLE = (Path(__file__).parents[2] / "app/analysis/report/style.css").read_text(encoding="utf-8")


class Document(HTMLParser):
    """The parts of a page that a test wants to know."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.loaded: list[str] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.attributes |= set(found)
        if "id" in found:
            self.ids.append(found["id"] or "")
        if tag == "a":
            self.links.append(found.get("href") or "")
        self.loaded += [found[name] or "" for name in ("src", "srcset", "action", "poster") if name in found]
        self.loaded += [found["href"] or ""] if tag == "link" else []

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name of the sample -> folder with the report."""
    return {name: write_report(tmp_path_factory.mktemp(name), sample) for name, sample in SAMPLES.items()}


def page_of(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


class TestPage:
    def test_the_same_rows_give_the_same_page(self) -> None:
        assert render(*made(Sample())) == render(*made(Sample()))

    def test_months_of_hours_stay_under_a_megabyte(self, outputs: dict[str, Path]) -> None:
        assert (outputs["months"] / "report.html").stat().st_size < 1_000_000

    @pytest.mark.parametrize("name", SAMPLES)
    def test_nothing_is_loaded_and_every_link_leads_somewhere(self, outputs: dict[str, Path], name: str) -> None:
        document = Document(page_of(outputs[name]))
        assert len(document.ids) == len(set(document.ids))
        assert {link.removeprefix("#") for link in document.links} <= set(document.ids)
        assert all(link.startswith("#") for link in document.links)
        assert set(document.loaded) == {"data:,"}
        assert "script" not in document.tags
        assert not re.search(r"@import|url\(", STYLE)

    def test_text_from_the_data_stays_text(self, outputs: dict[str, Path]) -> None:
        page = page_of(outputs["hostile"])
        document = Document(page)
        assert not {name for name in document.attributes if name.startswith("on")}
        assert not {"script", "img", "iframe", "object"} & set(document.tags)
        assert "\x1b" not in page
        assert "\u202e" not in page
        assert "\u202d" not in page
        assert "<script>window.hacked=1</script>" in "".join(document.text)

    def test_every_number_plot_and_table_leads_to_its_query(self, outputs: dict[str, Path]) -> None:
        page = page_of(outputs["day"])
        for table in TABLES:
            assert f'id="query-{table.name}"' in page
        figures = re.findall(r"<figure .*?</figure>", page, re.DOTALL)
        assert len(figures) > 12
        assert all('class="query" href="#query-' in figure for figure in figures)
        numbers = re.findall(r"<dd>.*?</dd>", page)
        assert len(numbers) > 8
        assert all('href="#query-' in number for number in numbers)

    def test_where_there_is_nothing_a_sentence_says_so(self, outputs: dict[str, Path]) -> None:
        page = page_of(outputs["empty"])
        assert '<path class="mark' not in page
        for sentence in ("Nothing is flagged", "No command was answered.", "There is nothing to show."):
            assert sentence in page

    def test_a_few_timeouts_after_the_last_command_do_not_dwarf_the_other_shares(self) -> None:
        summary, rows = made(Sample())
        last = max(rows["latency_by_hour"], key=lambda row: row["hour"])
        last |= {"commands": 6, "answered": 0, "succeeded": 0, "failed": 0, "timed_out": 6, "cancelled": 0, "unsent": 0}
        assert "together at most 100" not in render(summary, rows)

    def test_the_first_sentence_says_whether_it_is_homing_the_broker_or_the_device(
        self, outputs: dict[str, Path]
    ) -> None:
        page = "".join(Document(page_of(outputs["day"])).text)
        main = page[page.index("Skip the contents") :].replace(THIN, " ")
        said = "It is the device: of the 614 ms that a command typically takes, "
        assert said + "611 ms (99.64 %) are the device and its way to the broker, 1.57 ms (0.26 %) Homing, " in main
        assert main.index(said) < main.rindex("node-b has 2.2 times")

    @pytest.mark.parametrize(("failed", "said"), [(0.08, "more than the 5 % that"), (0.01, "within the 5 % that")])
    def test_an_absolute_line_holds_whatever_peers_and_past_are(self, failed: float, said: str) -> None:
        summary, rows = made(Sample(hours=3))
        (total,) = rows["latency"]
        lost = round(failed * total["commands"])
        total |= {"succeeded": total["commands"] - lost, "failed": lost, "timed_out": 0, "unsent": 0, "cancelled": 0}
        page = "".join(Document(render(summary, rows)).text).replace(THIN, " ")
        assert f"{said} the objective allows" in page

    def test_a_few_commands_that_took_days_rule_no_axis(self) -> None:
        """Outliers in the hours that count, and a tail of five days with a command now and then."""
        summary, rows = made(Sample())
        plain = render(summary, rows)
        hours = sorted(rows["latency_by_hour"], key=lambda row: row["hour"])
        hours[3] |= {"p999_us": 400_000_000_000, "max_us": 500_000_000_000}
        for row in rows["stages"]:
            row["mean_us"] *= 1000
        last = {**hours[-1], **dict.fromkeys(("commands", "answered", "succeeded"), 1), "p999_us": 400_000_000_000}
        tail = [{**last, "hour": hours[-1]["hour"] + timedelta(hours=9 * number)} for number in range(1, 14)]
        rows["latency_by_hour"] += tail
        page = render(summary, rows)
        axes = re.compile(r'<i style="(?:bottom:|--at:)[^>]*>[^<]*</i>')
        assert axes.findall(page) == axes.findall(plain)
        assert "Commands before or after it, which are not drawn: 13." in page
        assert "Steps that reach beyond the edge: 1." in page

    @pytest.mark.parametrize(("part", "seed"), [(1.0, 0), (0.3, 1), (0.7, 2)])
    def test_values_that_are_missing_are_dashes_and_no_error(self, part: float, seed: int) -> None:
        """Percentiles of an hour without answers, ranks of devices with few commands, and so on."""
        summary, rows = made(Sample(hours=3))
        chance = random.Random(seed)
        for table in TABLES:
            optional = {column.name for column in table.columns if column.name.endswith("_us")}
            if table.name.startswith("stages"):
                continue
            for row in rows[table.name]:
                row.update(dict.fromkeys(optional if chance.random() < part else ()))
        assert not re.search(r"\bnan\b|\bNone\b", "".join(Document(render(summary, rows)).text))

    def test_names_in_any_script_are_shown_as_they_are(self) -> None:
        summary, rows = made(Sample())
        rows["latency_by_method"][0]["method"] = "離陸 \u0625\u0642\u0644\u0627\u0639"
        assert "離陸 \u0625\u0642\u0644\u0627\u0639" in "".join(Document(render(summary, rows)).text)


class TestColours:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_text_and_marks_have_enough_contrast(self, scheme: str) -> None:
        """WCAG 2.2: 4.5 for text (1.4.3), 3 for what carries meaning in graphics (1.4.11)."""
        found = re.findall(r"([\w-]+)(?::| \{ fill:) light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", STYLE)
        colours = {name.removeprefix("--"): dark if scheme == "dark" else light for name, light, dark in found}
        for text, paper in (
            *((text, paper) for text in ("ink", "muted", "accent") for paper in ("paper", "panel")),
            ("warn", "warn-paper"),
            ("ink", "warn-paper"),
            ("muted", "warn-paper"),
        ):
            assert contrast(colours[text], colours[paper]) >= 4.5, (text, paper)
        series = [stage for stage in STAGES if stage != "device"]
        for name in (*series, "blue", "hot", "band-0", "band-1", "band-2"):
            assert contrast(colours[name], colours["paper"]) >= 3, name


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium_binary()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(FLAGS), chromium_sandbox=False)
        yield running
        running.close()


class Visit:
    """A page in the browser, and what it said and asked for."""

    def __init__(self, browser: Browser, folder: Path, width: int, scheme: str) -> None:
        self.page: Page = browser.new_page(
            viewport={"width": width, "height": 800}, color_scheme="dark" if scheme == "dark" else "light"
        )
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.address = (folder / "report.html").as_uri()
        self.page.goto(self.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.page.close()

    def overflow(self) -> int:
        wide: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return wide

    def blank_plots(self) -> list[str]:
        """The figures with a plot none of whose marks is to be seen."""
        blank: list[str] = self.page.evaluate(
            """() => {
              const seen = mark => {
                const box = mark.getBoundingClientRect(), style = getComputedStyle(mark);
                const paper = getComputedStyle(document.body).backgroundColor;
                const filled = style.fill !== 'none' && style.fill !== paper && box.width > 0.2 && box.height > 0.2;
                const drawn = style.stroke !== 'none' && style.stroke !== paper && parseFloat(style.strokeWidth) > 0;
                return mark.checkVisibility({opacityProperty: true, visibilityProperty: true}) && (filled || drawn);
              };
              const figures = [...document.querySelectorAll('figure')].filter(one => one.querySelector('svg.plot'));
              const marks = one => [...one.querySelectorAll('.mark:not(.reference)')];
              return figures.filter(one => !marks(one).some(seen)).map(one => one.id);
            }"""
        )
        return blank

    def plots(self) -> int:
        return self.page.locator("figure:has(svg.plot)").count()


LONGEST = 2400
"""Pixels of a screenshot from the top."""
LOOKS = [
    ("day", 360, "light"),
    ("day", 360, "dark"),
    ("day", 1280, "dark"),
    ("hour", 360, "light"),
    ("hour", 1280, "dark"),
    ("months", 360, "dark"),
    ("months", 1920, "light"),
    ("hostile", 360, "light"),
    ("hostile", 1280, "dark"),
    ("empty", 360, "dark"),
]


class TestBrowser:
    @pytest.mark.parametrize(("name", "width", "scheme"), LOOKS)
    def test_the_page_is_good_to_look_at(
        self, browser: Browser, outputs: dict[str, Path], tmp_path: Path, name: str, width: int, scheme: str
    ) -> None:
        with Visit(browser, outputs[name], width, scheme) as visit:
            assert visit.blank_plots() == []
            assert visit.plots() == (0 if name == "empty" else 6)
            assert visit.overflow() <= 0
            assert visit.page.evaluate("window.hacked") is None
            screenshot = tmp_path / f"{name}-{width}-{scheme}.png"
            tall = min(LONGEST, visit.page.evaluate("document.documentElement.scrollHeight"))
            visit.page.set_viewport_size({"width": width, "height": tall})
            visit.page.screenshot(path=screenshot)
            assert visit.said == []
            assert visit.asked == [visit.address]
        colours = colours_of(browser, screenshot)
        assert len(colours) > 16, "a blank page has one"
        if name != "empty":
            assert SERIES[scheme] in colours
        paper = max(colours, key=lambda colour: colours[colour])
        assert (sum(paper) > 600) == (scheme == "light")

    def test_details_open_and_a_touched_column_shows_its_numbers(
        self, browser: Browser, outputs: dict[str, Path]
    ) -> None:
        with Visit(browser, outputs["day"], 360, "light") as visit:
            for details in visit.page.locator("details").all():
                details.locator("summary").first.click()
            assert visit.overflow() <= 0
            for place in (0, 12, 23):
                tip = visit.page.locator("#latency-over-time .tip").nth(place)
                tip.hover()
                assert "p99" in tip.inner_text()
                box = tip.locator("> span").bounding_box()
                assert box is not None
                assert box["x"] >= 0
                assert box["x"] + box["width"] <= 360
                assert visit.overflow() <= 0

    def test_on_paper_plots_are_there_and_what_is_for_screens_is_not(
        self, browser: Browser, outputs: dict[str, Path], tmp_path: Path
    ) -> None:
        with Visit(browser, outputs["day"], 680, "dark") as visit:
            paper = visit.page.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
            assert paper.startswith(b"%PDF-")
            assert 4 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 20
            assert b"/MediaBox [0 0 594.95996 841.91998]" in paper, "A4"
            visit.page.emulate_media(media="print")
            assert visit.blank_plots() == []
            assert visit.overflow() <= 0
            assert not visit.page.locator("nav").is_visible()
            assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


COUNT_COLOURS = """async source => {
  const image = new Image();
  image.src = source;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext('2d');
  context.drawImage(image, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer), counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
  return [...counts];
}"""


def colours_of(browser: Browser, png: Path) -> dict[tuple[int, int, int], int]:
    """Colour -> number of pixels. The browser decodes the picture."""
    page = browser.new_page()
    source = f"data:image/png;base64,{base64.b64encode(png.read_bytes()).decode()}"
    counts: list[tuple[int, int]] = page.evaluate(COUNT_COLOURS, source)
    page.close()
    return {(pixel & 255, pixel >> 8 & 255, pixel >> 16 & 255): count for pixel, count in counts}
