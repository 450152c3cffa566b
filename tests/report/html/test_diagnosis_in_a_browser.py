"""The page of `diagnose` in a real browser: the answer in view, the map at any size, hostile words as text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests import needs, standin
from tests.conftest import ROOT
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Subject
from whichrank.model.verdict import Position, RankInfo, Wait
from whichrank.model.views import Slice, StackNode, Track
from whichrank.report.html import diagnosis as html
from whichrank.report.html.ranks_over_time import kinds

webdriver = needs.package("selenium.webdriver")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")
HOSTILE = (
    "</pre></script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "<!-- \x1b[31m\x00 \u202egnp.exe\u2066 \U000e0041 & &lt; ' \" ]]> "
)


CRASH = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/srv/train.py", line 12, in <module>
[rank0]:     step(batch)
[rank0]:   File "/srv/train.py", line 7, in step
[rank0]:     raise ValueError("sample 17 is damaged")
[rank0]: ValueError: sample 17 is damaged"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def shown(browser, told, folder: Path, width: int = 1280, height: int = 800) -> Path:
    """Open the page of a diagnosis; nothing is loaded from elsewhere, nothing fails."""
    path = folder / "report.html"
    path.write_text("".join(html.render(told)), encoding="utf-8")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.get_log("performance")
    browser.get(path.as_uri())
    said = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in said if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:", "chrome"))] == []
    assert browser.get_log("browser") == []
    return path


def bottom(browser, selector: str) -> float:
    return browser.execute_script(f"return document.querySelector({selector!r}).getBoundingClientRect().bottom")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_answer_needs_no_scrolling(browser, tmp_path, width, height):
    told = diagnose([ROOT / "examples" / "skipped_collective"], views=True)
    shown(browser, told, tmp_path, width, height)
    assert browser.execute_script("return document.querySelector('h1').textContent") == told.verdict.summary
    assert bottom(browser, "h1") < height
    assert bottom(browser, ".facts") < height
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    if width > 1000:
        assert bottom(browser, ".act") < height
    assert "culprit" in browser.execute_script("return document.querySelector('[data-map] script').textContent")
    assert browser.execute_script("return document.querySelector('[data-map]').dataset.ready") == "true"


def test_a_command_can_be_copied(browser, tmp_path):
    shown(browser, standin.hang(), tmp_path)
    browser.execute_script("""
        window.copied = null;
        const clipboard = {writeText: async (words) => { window.copied = words; }};
        Object.defineProperty(navigator, 'clipboard', {value: clipboard});
        document.querySelector('[data-copy]').click();""")
    assert browser.execute_script("return window.copied") == "py-spy dump --pid 760"
    assert browser.execute_script("return document.querySelector('[data-copy]').textContent") == "Copied"


def test_a_note_behind_a_command_is_not_copied(browser, tmp_path):
    told = standin.hang()
    steps = ("ss -tn state syn-recv (on the peer)", "grep '(x)' log", "py-spy dump --pid $(pgrep -n python)")
    shown(browser, replace(told, next=tuple(replace(told.next[0], command=step) for step in steps)), tmp_path)
    commands = browser.execute_script("return [...document.querySelectorAll('.command code')].map((c) => c.innerText)")
    assert {"ss -tn state syn-recv", *steps[1:]} <= set(commands)
    assert "On the peer:" in browser.execute_script("return document.body.innerText")


@pytest.mark.parametrize(("category", "who"), [("healthy", ""), ("unknown", "not known")])
def test_where_nobody_is_to_blame_no_card_says_who(category, who):
    told = replace(standin.hang().verdict, category=category, cause=category, culprits=Subject(), victims=())
    whole = "".join(html.render(replace(standin.hang(), verdict=told)))
    assert ("<span>Who</span>" in whole, who in whole) == (category == "unknown", True)


def test_hostile_words_are_text(browser, tmp_path):
    ref = Ref(HOSTILE, HOSTILE, HOSTILE + "A" * 10_000_000, 2, HOSTILE, "2026-01-01T00:00:00Z")
    told = standin.hang()
    verdict = replace(told.verdict, summary=HOSTILE, cause=HOSTILE, fix=(HOSTILE,))
    told = replace(
        told,
        verdict=verdict,
        findings=(standin.finding(HOSTILE, message=HOSTILE, evidence=(ref,)),),
        next=tuple(replace(step, command=HOSTILE, why=HOSTILE) for step in told.next),
        ranks=(RankInfo(2, HOSTILE), RankInfo(3, HOSTILE)),
        tracks=(Track((2,), (Slice(HOSTILE, 1, HOSTILE, 10, 20, HOSTILE),)), Track((3,))),
        stacks=(StackNode(HOSTILE, 1, HOSTILE, (2, 3)),),
    )
    path = shown(browser, told, tmp_path)
    assert path.stat().st_size < 200_000
    assert browser.title.startswith("HANG")
    assert browser.execute_script("return document.images.length") == 0
    assert browser.execute_script("return document.scripts.length") == 3  # the map's data, the map, the copy buttons
    seen = browser.execute_script("return document.body.innerText")
    assert "<script>document.title='owned'</script>" in seen
    whole = path.read_text(encoding="utf-8")
    assert not any(sign in whole for sign in "\x00\x1b\u202e\u2066\U000e0041")


def test_a_hostile_log_is_text(browser, tmp_path):
    """From the file to the page: HTML, scripts, control characters and lines of 10 MB."""
    (tmp_path / "logs").mkdir()
    lines = [
        "start " + HOSTILE,
        "[rank0]: " + "<b>A</b>" * 1_250_000,
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/srv/<b>/train.py", line 7, in <script>alert(1)',
        f"[rank1]: ValueError: {HOSTILE.strip()}",
        "[rank1]: ValueError: " + "<i>" * 3_400_000,
    ]
    (tmp_path / "logs" / "<script>alert(2)<.log").write_text("\n".join(lines), encoding="utf-8")
    told = diagnose([tmp_path / "logs"], views=True)
    assert told.verdict.culprits.ranks == (1,)
    path = shown(browser, told, tmp_path)
    assert path.stat().st_size < 200_000
    assert browser.title.startswith("CRASH")
    assert browser.execute_script("return document.images.length + document.querySelectorAll('b i, h1 *').length") == 0
    assert "<script>document.title='owned'</script>" in browser.execute_script("return document.body.innerText")
    quoted = browser.execute_script("return [...document.querySelectorAll('pre')].map((each) => each.textContent)")
    assert any("Traceback (most recent call last)" in text for text in quoted), "a zero byte does not hide the context"


@pytest.mark.parametrize("width", [360, 390])
def test_a_phone_needs_no_sideways_scrolling(browser, tmp_path, width):
    shown(browser, diagnose([ROOT / "examples" / "skipped_collective"], views=True), tmp_path, width, 740)
    wide = (
        "return [...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth).length"
    )
    assert browser.execute_script(wide) == 0
    assert bottom(browser, ".facts") < 740


def test_a_tap_says_what_a_hover_says(browser, tmp_path):
    shown(browser, diagnose([ROOT / "examples" / "skipped_collective"], views=True), tmp_path, 360, 740)
    browser.execute_script("document.querySelector('canvas').scrollIntoView({block: 'center'})")
    box = "return (({x, y}) => [x, y])(document.querySelector('canvas').getBoundingClientRect())"
    x, y = browser.execute_script(box)
    place = [{"x": x + 250, "y": y + 40}]
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": place})
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    tip = "const tip = document.querySelector('.tip'); return tip.hidden ? '' : tip.textContent"
    assert browser.execute_script(tip).startswith("rank 0: ")
    edge = browser.execute_script("return document.querySelector('.tip').getBoundingClientRect().right")
    assert edge <= 360


def test_where_a_rank_is_and_the_line_it_is_about(browser, tmp_path):
    """Rank 2 waits at line 30 since it skipped line 25."""
    shown(browser, diagnose([ROOT / "examples" / "skipped_collective"], views=True), tmp_path)
    who = browser.execute_script("return document.querySelector('.facts .card').innerText")
    assert "at train.py:30 in train_step" in who
    assert "code: train.py:25 in sync_grads" in who
    assert "Where no end was recorded, as with Gloo" in browser.execute_script("return document.body.innerText")


def test_ranks_whose_waits_are_not_listed_wait_like_the_others():
    told = standin.hang()
    at = Position("g", 7, "all_reduce")
    ranks = tuple(
        RankInfo(rank, state="stuck" if rank == 5 else "waiting", at=None if rank == 5 else at) for rank in range(9)
    )
    waits = tuple(Wait(rank, "g", 7, "all_reduce", (5,)) for rank in range(4))
    told = replace(told, ranks=ranks, waits=waits, verdict=replace(told.verdict, culprits=Subject(ranks=(5,))))
    assert [(kind.ranks, kind.waits_for) for kind in kinds(told)] == [((5,), ""), ((0, 1, 2, 3, 4, 6, 7, 8), "rank 5")]
    torn = (*waits, Wait(6, "g", 7, "all_reduce", (1,)))  # two parties: nobody knows to which the rest belongs
    assert ((4, 7, 8), "") in [(kind.ranks, kind.waits_for) for kind in kinds(replace(told, waits=torn))]


def large(world: int = 16_384):
    """Every rank in a row of its own kind would be too many: ranks that did the same are together."""
    slices = tuple(Slice("dp", n, "all_reduce", n * 1_000_000, n * 1_000_000 + 600_000) for n in range(16))
    stuck = (*slices, Slice("dp", 16, "all_reduce", 16_000_000, None))
    others = tuple(rank for rank in range(world) if rank != 7)
    told = standin.large(world)
    return replace(
        told,
        verdict=replace(told.verdict, culprits=replace(told.verdict.culprits, ranks=(7,)), victims=others),
        waits=tuple(Wait(rank, "g", 16, "all_reduce", (7,)) for rank in others),
        tracks=(Track((7,), slices), *(Track(others[i::390], stuck) for i in range(390))),
    )


def test_16384_ranks_stay_usable(browser, tmp_path):
    path = shown(browser, large(), tmp_path)
    assert path.stat().st_size < 2 << 20
    labels = "return JSON.parse(document.querySelector('[data-map] script').textContent).rows.map((row) => row.label)"
    assert browser.execute_script(labels)[:3] == ["rank 7", "43 ranks · 0, …", "43 ranks · 1, …"]
    took = browser.execute_script("""
        const canvas = document.querySelector('canvas'), box = canvas.getBoundingClientRect(), times = [];
        for (let i = 0; i < 20; i++) {
          const start = performance.now(), place = {clientX: box.x + 300 + 20 * i, clientY: box.y + 60 + 9 * i};
          canvas.dispatchEvent(new PointerEvent('pointermove', place));
          times.push(performance.now() - start);
        }
        return times.sort((a, b) => a - b)[10];""")
    assert took < 500  # it takes some 10 ms
    assert "rank" in browser.execute_script("return document.querySelector('.tip').textContent")
    browser.execute_script("document.querySelector('[data-zoom=in]').click()")
    browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")
    begin, end = map(float, browser.execute_script("return document.querySelector('[data-map]').dataset.view").split())
    assert 0 < begin < end


@pytest.mark.parametrize("world", [1024, 16_384])
def test_ranks_that_all_did_something_else_stay_below_2_mb(world):
    def track(rank):
        place = f"{'a_long_name_' * 10}{rank}.py:7 in {'f' * 40}_{rank}"
        return Track(
            (rank,),
            tuple(Slice(f"group_{rank}", n, "all_reduce", n * 1000, n * 1000 + 600, f"{place}{n}") for n in range(16)),
        )

    def stack(rank):
        return StackNode("/srv/a/long/path/" * 5 + f"m{rank}.py", rank, f"function_{rank}" * 4, (rank,), own=True)

    told = replace(
        standin.large(world),
        tracks=tuple(map(track, range(world))),
        stacks=tuple(map(stack, range(world))),
        ranks=tuple(
            RankInfo(rank, f"a-host-with-a-long-name-{rank}", coords={"tp": rank % 8}) for rank in range(world)
        ),
        waits=tuple(Wait(rank, f"g{rank}", rank, "all_reduce", (rank - 1,)) for rank in range(1, world)),
    )
    whole = "".join(html.render(told))
    assert len(whole.encode()) < 2_000_000
    assert "more kinds of behaviour are not drawn" in whole
    named = told.verdict.culprits.ranks[0]
    assert f'"label":"rank {named}","flag":"culprit"' in whole


def test_stacks_of_all_ranks_are_one_tree(browser, tmp_path):
    inner = (
        StackNode("torch/c10d.py", 9, "all_reduce", tuple(range(1023))),
        StackNode("train.py", 30, "fetch_shard", (1023,), own=True),
    )
    root = StackNode("train.py", 118, "main", tuple(range(1024)), own=True, children=inner)
    shown(browser, replace(standin.hang(), stacks=(root,)), tmp_path)
    seen = browser.execute_script("return document.querySelector('.tree').innerText")
    assert "1,024 ranks" in seen
    assert "1,023 ranks" in seen
    assert "rank 1023" in seen
    assert "fetch_shard" in seen


def test_a_quote_stands_in_its_context_and_doubts_say_what_settles_them(browser, tmp_path):
    log = tmp_path / "evidence" / "rank0.log"
    log.parent.mkdir()
    lines = ["epoch 1 begins", "loss 0.3", *CRASH.splitlines(), "<b>after</b>"]
    log.write_text("\n".join(lines) + "\n")
    told = diagnose([log.parent], views=True)
    doubt = Alternative("gpu-out-of-memory", "memory was nearly full", 0.05)
    told = replace(told, verdict=replace(told.verdict, alternatives=(doubt,)))
    shown(browser, told, tmp_path)
    quoted = browser.execute_script("return [...document.querySelectorAll('pre')].map((each) => each.textContent)")
    bold = browser.execute_script("return [...document.querySelectorAll('pre b')].map((each) => each.textContent)")
    assert any("ValueError: sample 17 is damaged" in text for text in quoted), quoted
    assert any("loss 0.3" in text for text in quoted), quoted
    assert len(bold) == 1
    assert "[rank0]:" in bold[0]
    seen = browser.execute_script("return document.body.innerText")
    assert "What would settle it:" in seen, seen
    assert "whichrank explain gpu-out-of-memory" in seen, seen


def test_the_map_is_ordered_by_coordinates(browser, tmp_path):
    told = standin.hang()
    ranks = tuple(RankInfo(rank, f"node{rank % 2}", coords={"tp": rank // 2}) for rank in range(4))
    step = (Slice("dp", 1, "all_reduce", 10, 20),)
    shown(browser, replace(told, ranks=ranks, tracks=tuple(Track((rank,), step) for rank in (2, 0, 1, 3))), tmp_path)
    options = browser.execute_script("return [...document.querySelector('[data-order]').options].map((o) => o.value)")
    assert options == ["", "host", "tp"]
    first = """
        const order = document.querySelector('[data-order]'), canvas = document.querySelector('canvas');
        order.value = arguments[0];
        order.onchange();
        const box = canvas.getBoundingClientRect();
        canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: box.x + 200, clientY: box.y + 30}));
        return document.querySelector('.tip').textContent.split(':')[0];"""
    assert [browser.execute_script(first, axis) for axis in ("", "host", "tp")] == ["rank 2", "rank 2", "rank 0"]
