"""A report: one page that stands alone, of a run that may hardly have begun."""

import html.parser
import json
import re

import numpy as np
import pytest

from zero_app import (
    App,
    chart,
    charts,
    curve,
    JsonLines,
    Series,
    StoredRun,
    table,
    tables,
    write_report,
)


class _Page(html.parser.HTMLParser):
    """Words of a page, what it would load, and whether its elements are closed."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "input"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#"):
                self.loads.append(value or "")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag != "meta":
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data.strip())


def _lines(path, rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_run(folder) -> None:
    steps = range(1, 31)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"seed": 0, "note": "<b>&", "fast": True}))
    _lines(
        folder / "metrics.jsonl",
        [{"step": n, "loss": 1 / n, "games": 40 * n, "positions": 900 * n} for n in steps],
    )
    rates = {"positions_per_second": 450.0, "games_per_second": 20.0}
    _lines(folder / "timings.jsonl", [{"step": n, "seconds": 2.5, **rates} for n in steps])


def of_nim(run):
    error = [0.5, 0.25]
    sections = [
        charts(
            "Learning",
            chart(run, "Loss", "In nats.", curve(run.metrics, "loss")),
            chart(
                run,
                "Strength",
                "Of two players.",
                Series("a < b", [10, 20], [0.25, 0.75], (error, error)),
                Series("other", [10, 20], [0.5, 0.5]),
                levels=[("the best", 1.0)],
                percent=True,
            ),
        ),
        "",
        tables(table("Players", ["name", "wins"], [["<script>", 3], ["b", 4]])),
    ]
    return {"best <move>": "e2 & e4"}, sections


def write(folder):
    return write_report(App("<nim>", "Nim.", {}, lambda config: pytest.fail(), page=of_nim), folder)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> tuple[str, _Page]:
    folder = tmp_path_factory.mktemp("runs") / "first"
    write_run(folder)
    text = write(folder).read_text()
    assert not list(folder.glob(".*"))
    return text, _Page(text)


def test_the_page_stands_alone(page):
    text, parsed = page
    assert parsed.open == [] and parsed.loads == []
    assert not re.search(r"@import|url\((?!#)|<script|<link", text)


def test_every_part_is_there(page):
    text, parsed = page
    assert parsed.tags.count("figure") == parsed.tags.count("svg") == 4
    # Steps, games and positions so far, and 30 steps of 2.5 s.
    assert {"30", "1,200", "27,000", "1:15"} <= set(parsed.words)
    assert {"<nim>: first", "best <move>", "e2 & e4", "a < b", "the best"} <= set(parsed.words)
    assert {"<script>", "<b>&", "true", "50 %"} <= set(parsed.words)  # values, not markup
    # Colours come from the page, so that dark mode reaches the charts.
    assert "var(--series-0)" in text and "var(--series-1)" in text
    assert not re.search("#0[147]0", text)


def test_what_is_no_text_is_shown_as_a_question_mark(tmp_path):
    """Half of a surrogate pair, which JSON may hold and a file may not."""
    write_run(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"network": "a\ud800b"}))
    assert "a?b" in write(tmp_path).read_text(encoding="utf-8")


def test_a_run_that_goes_on_is_read_again(tmp_path):
    write_run(tmp_path)
    app = App("<nim>", "Nim.", {}, lambda config: pytest.fail(), page=of_nim)
    text = write_report(app, tmp_path, refresh=60).read_text()
    assert '<body data-refresh="60">' in text and "location.reload()" in text
    assert "reload" not in write(tmp_path).read_text()


def test_what_differs_from_the_preset_is_marked(tmp_path):
    write_run(tmp_path)
    preset = {"name": "<quick>", "config": {"seed": 1, "note": "<b>&", "fast": True}}
    later = {**preset, "name": "that of --resume"}
    _lines(tmp_path / "starts.jsonl", [{"step": 0, "preset": preset}, {"step": 1, "preset": later}])
    text = write(tmp_path).read_text()
    for damaged in (3, {"config": "seed"}):
        _lines(tmp_path / "starts.jsonl", [{"step": 0, "preset": damaged}])
        assert 'class="changed"' not in write(tmp_path).read_text()
    assert '<div class="changed"><dt>seed</dt><dd><s>1</s>0</dd></div>' in text
    assert text.count('class="changed"') == 1
    assert "The preset is &lt;quick&gt;; 1 differs from it." in text


def test_optimiser_and_memory_are_drawn_where_they_were_logged(tmp_path, page):
    assert not {"Gradient norm", "Learning rate", "Memory"} & set(page[1].words)
    write_run(tmp_path)
    rates = {"learning_rate_policy": 0.1, "learning_rate_value": 0.2}
    _lines(tmp_path / "metrics.jsonl", [{"step": n, "gradient_norm": 2.0, **rates} for n in (1, 2)])
    memory = {"host_bytes": 3_000_000_000, "seconds": 1.0}
    _lines(tmp_path / "timings.jsonl", [{"step": n, **memory} for n in (1, 2)])
    words = set(_Page(write(tmp_path).read_text()).words)
    assert {"Gradient norm", "Learning rate", "policy", "value", "Memory", "host"} <= words
    assert "devices" not in words  # a CPU has none of its own


def test_the_same_run_gives_the_same_page(page, tmp_path):
    write_run(tmp_path / "first")
    assert write(tmp_path / "first").read_text() == page[0]


def test_a_run_that_has_hardly_begun(tmp_path):
    parsed = _Page(write(tmp_path).read_text())
    assert parsed.open == [] and parsed.words.count("nothing yet") == 3
    assert "Configuration" not in parsed.words
    _lines(tmp_path / "metrics.jsonl", [{"step": 1, "loss": None}, {"step": 2}])
    assert write(tmp_path).read_text().count("nothing yet") == 3


def test_scores_and_returns_have_error_bars(tmp_path, monkeypatch):
    """The 95 % interval of a score; Student's of a return."""
    drawn = []
    monkeypatch.setattr("zero_app._run._chart.draw", lambda series, **_: drawn.append(series[0]))
    score = {"score": 0.5, "score_low": 0.25, "score_high": 0.625}
    for row, bars in (
        (score, ([0.25], [0.125])),
        ({"return_mean": 3.0, "return_se": 0.5, "episodes": 3}, ([2.151], [2.151])),
        # Rounded to the other side of the point.
        ({**score, "score_high": 0.4999}, ([0.25], [0.0])),
    ):
        _lines(tmp_path / "evaluations.jsonl", [{"step": 1, **row}])
        write_report(App("any", "Any.", {}, lambda config: pytest.fail()), tmp_path)
        assert drawn[0].error == tuple([pytest.approx(x[0], abs=1e-3)] for x in bars)
        drawn.clear()


def test_a_curve_leaves_out_lines_without_it():
    rows = [{"step": 1, "x": 2.0}, {"step": 2}, {"step": 3, "x": None}, {"step": 5, "x": 0.0}]
    assert curve(rows, "x", "name") == Series("name", [1, 5], [2.0, 0.0])


@pytest.mark.parametrize(
    "axis, expected", [("steps", [0, 15, 30]), ("positions", [0, 13_500, 27_000])]
)
def test_charts_are_over_steps_positions_or_hours(tmp_path, axis, expected):
    write_run(tmp_path)
    assert list(StoredRun.read(tmp_path, axis).along([0, 15, 30])) == expected
    hours = StoredRun.read(tmp_path, "hours").along([0, 15, 30])
    np.testing.assert_allclose(hours, np.asarray([0, 37.5, 75]) / 3600)
    app = App("<nim>", "Nim.", {}, lambda config: pytest.fail(), page=of_nim)
    words = _Page(write_report(app, tmp_path, axis).read_text()).words
    assert axis.removesuffix("s" if axis == "steps" else "") in words


def test_a_long_log_is_read_as_means_and_its_last_row(tmp_path, monkeypatch):
    """Of 50 rows, means of eight each and of the two that are left; sums stay what they are."""
    monkeypatch.setattr("zero_app._run._report._MEANS", 4)
    for file, name in (("metrics", "loss"), ("timings", "seconds")):
        lines = JsonLines(tmp_path / f"{file}.jsonl")
        for i in range(50):
            lines.log(i + 1, {name: i**2} | ({"rare": i} if i == 17 else {}))
        lines.close()
    run = StoredRun.read(tmp_path, "hours")
    losses = np.arange(50) ** 2
    expected = [*losses[:48].reshape(6, 8).mean(axis=1), losses[48:].mean(), losses[49]]
    assert [row["loss"] for row in run.metrics] == expected
    assert [row.get("rare") for row in run.metrics] == [None, None, 17, *[None] * 5]
    assert [row["step"] for row in run.metrics] == [4.5 + 8 * i for i in range(6)] + [49.5, 50]
    assert run.timings[-1]["elapsed"] == losses.sum()
    assert run.along([50]) == [losses.sum() / 3600]
