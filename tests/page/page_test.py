"""The diagnosis as a page, in the browser people use: right numbers, no script error, no network, names stay text.

    tests/page/page_test.py PACELINE     the command to test
"""
import gzip
import html.parser
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import synthetic  # noqa: E402  pylint: disable=wrong-import-position

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOB = ROOT / "examples" / "slow_rank"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PACELINE = ROOT / "build/release/cli/paceline"
FLAGS = ("--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
         "--disable-component-update --disable-sync --disable-default-apps --enable-logging=stderr --v=0 "
         "--window-size=1280,900 --virtual-time-budget=5000").split()
HOSTILE = "<img src=x onerror=alert(1)>"
HOSTILE_END = "</script><script>document.title='taken'</script><!--"
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Node:
    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent, self.children = tag, dict(attributes), parent, []

    def all(self, tag=None, name=None, **attributes):
        """Descendants by tag, class and attributes (data_part="x" for data-part)."""
        for child in self.children:
            if not isinstance(child, Node):
                continue
            wanted = {key.replace("_", "-"): value for key, value in attributes.items()}
            if (tag is None or child.tag == tag) and \
               (name is None or name in (child.attributes.get("class") or "").split()) and \
               all(child.attributes.get(key) == value for key, value in wanted.items()):
                yield child
            yield from child.all(tag, name, **attributes)

    def one(self, *arguments, **attributes):
        found = list(self.all(*arguments, **attributes))
        assert len(found) == 1, f"{len(found)} of {arguments} {attributes}"
        return found[0]

    @property
    def text(self):
        if self.tag in ("script", "style"):
            return ""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)


class Reader(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.root = self.open = Node("document", [], None)
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        node = Node(tag, attrs, self.open)
        self.open.children.append(node)
        if tag not in VOID:
            self.open = node

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        while self.open.tag != tag and self.open.parent:
            self.open = self.open.parent
        self.open = self.open.parent or self.open

    def handle_data(self, data):
        self.open.children.append(data)


def load(page):
    """(the document after its script ran, lines that the page wrote to the console)."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        run = subprocess.run([CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", page.resolve().as_uri()],
                             capture_output=True, text=True, encoding="utf-8", timeout=120, check=False)
    if run.returncode != 0 or "<html" not in run.stdout:
        raise AssertionError(f"chromium ended with {run.returncode} and {len(run.stdout)} bytes: {run.stderr[-3000:]}")
    return Reader(run.stdout).root, [line for line in run.stderr.splitlines() if "CONSOLE" in line]


def ms(nanoseconds):
    thousands = (nanoseconds + 500) // 1000
    return f"{thousands // 1000}.{thousands % 1000:03}"


def count(number):
    return f"{number:,}"


def rows_of(table):
    """[[(text, ns or None)]] of a table's body."""
    return [[(cell.text, int(cell.attributes["data-ns"]) if "data-ns" in cell.attributes and
              cell.attributes["data-ns"].isdigit() else None) for cell in row.all("td")]
            for row in table.one("tbody").all("tr")]


def diagnose(inputs, page):
    run = subprocess.run([PACELINE, "diagnose", inputs, "--json", "--html", page], capture_output=True, text=True,
                         encoding="utf-8", cwd=ROOT, check=True)
    return json.loads(run.stdout)


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.page = cls.folder / "slow_rank.html"
        cls.result = diagnose(JOB, cls.page)
        cls.dom, cls.console = load(cls.page)

    def assert_clean(self, dom, console):
        root = dom.one("html")
        self.assertIsNone(root.attributes.get("data-errors"))
        self.assertEqual(root.attributes.get("data-ready"), "true")
        self.assertEqual(console, [])

    def table(self, caption):
        return next(table for table in self.dom.all("table") if any(each.text.startswith(caption) for each in table.all("caption")))

    def test_the_script_runs_without_an_error(self):
        self.assert_clean(self.dom, self.console)

    def test_the_verdict_names_the_late_rank(self):
        self.assertEqual(self.result["late_rank"], 2)
        finding = next(each for each in self.result["findings"] if each["kind"] == "late_rank")
        self.assertEqual(self.dom.one("h1").text, finding["title"])
        self.assertTrue(finding["title"].startswith("rank 2 "))
        late = self.dom.one("div", "late")
        self.assertEqual(late.attributes["data-rank"], "2")
        self.assertIn("late", late.text)

    def test_every_finding_is_there_with_its_evidence(self):
        shown = list(self.dom.all("article"))
        self.assertEqual([each.attributes["data-id"] for each in shown], [each["id"] for each in self.result["findings"]])
        for article, finding in zip(shown, self.result["findings"]):
            self.assertEqual(int(article.attributes["data-ns"]), finding["cost_per_step_ns"])
            self.assertEqual(article.one(None, "basis").text, finding["basis"])
            for line in [finding["title"], finding["remedy"], *finding["evidence"]]:
                self.assertIn(line, article.text)
        causes = [int(cell.attributes["data-ns"]) for cell in self.dom.one("div", "causes").all("td", "ms")]
        self.assertEqual(causes, [cause["per_step_ns"] for cause in self.result["causes"]])

    def test_bars_and_table_of_a_step_equal_the_json(self):
        keys = [f"{part}_ns" for part in synthetic.PARTS]
        table = rows_of(self.table("Mean step of each rank"))
        self.assertEqual(len(table), len(self.result["ranks"]))
        for rank, row in zip(self.result["ranks"], table):
            mean = rank["mean_step"]
            for step in rank["steps"]:
                self.assertEqual(sum(step[key] for key in keys), step["duration_ns"])
            self.assertAlmostEqual(sum(mean[key] for key in keys), mean["duration_ns"], delta=len(keys))  # each rounded
            bar = self.dom.one("div", "row", data_rank=str(rank["rank"]))
            segments = {each.attributes["data-part"]: int(each.attributes["data-ns"]) for each in bar.all("i")}
            self.assertEqual(segments, {part: mean[f"{part}_ns"] for part in synthetic.PARTS if mean[f"{part}_ns"] > 0})
            self.assertEqual(row[0][0], str(rank["rank"]))
            self.assertEqual(row[1:11], [(ms(mean[key]), mean[key]) for key in ["duration_ns", *keys]])
            self.assertEqual(row[12][0], str(rank["times_last"]))

    def test_collectives_equal_the_json(self):
        table = rows_of(self.table("Each one in time order"))
        self.assertEqual(len(table), len(self.result["collectives"]))
        for index, (row, each) in enumerate(zip(table, self.result["collectives"])):
            self.assertEqual([text for text, _ in row[:3]], [str(index + 1), each["name"], count(each["elements"])])
            shown = [row[column] for column in (3, 5, 6, 7, 9)]
            times = [each["transfer_ns"], max(each["waits_ns"]), each["start_spread_ns"], each["end_spread_ns"], each["behind_ns"]]
            self.assertEqual(shown, [(ms(time), time) for time in times])
            self.assertEqual(row[8][0], f"rank {each['last_rank']}")
        sums = rows_of(self.table("By kind"))
        self.assertEqual(sum(row[3][1] for row in sums), sum(each["transfer_ns"] for each in self.result["collectives"]))

    def test_operators_equal_the_json_and_stop_at_15(self):
        table = rows_of(self.table("Host operators"))
        self.assertEqual(len(table), 15)
        for row, each in zip(table, self.result["operators"]):
            self.assertEqual(row, [(each["name"], None), (count(each["count"]), None),
                                   (ms(each["self_ns"]), each["self_ns"]), (ms(each["total_ns"]), each["total_ns"])])
        labels = [button.text for button in self.dom.one("section", id="operators").all("button", "more")]
        self.assertEqual(labels, [f"Show all {len(self.result['operators'])}"])

    def test_the_waiting_map_has_a_text_for_readers_of_the_screen(self):
        canvas = self.dom.one("section", id="waiting").one("canvas")
        self.assertIn("Waiting of 4 ranks in 12 collectives", canvas.attributes["aria-label"])

    def test_nothing_is_asked_of_the_network(self):
        text = self.page.read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"https?://[^\s\"']*", text), [])
        self.assertNotIn("@include", text)
        policy = next(each for each in self.dom.all("meta") if each.attributes.get("http-equiv") == "Content-Security-Policy")
        self.assertIn("default-src 'none'", policy.attributes["content"])
        asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            outside = f"http://127.0.0.1:{server.server_port}"
            attack = f'<img src="{outside}/i"><script src="{outside}/s"></script>' \
                     f'<script>fetch("{outside}/f").catch(() => 0)</script></body>'
            page, policy_off = self.folder / "outside.html", self.folder / "open.html"
            page.write_text(text.replace("</body>", attack), encoding="utf-8")
            policy_off.write_text(text.replace("</body>", attack).replace("Content-Security-Policy", "x"), encoding="utf-8")
            self.assertIn("blocked", load(page)[0].one("html").attributes.get("data-errors", "nothing was blocked"))
            self.assertEqual(asked, [])
            load(policy_off)  # so that the silence above is the policy's work
            self.assertNotEqual(asked, [])
            server.shutdown()

    def test_names_from_a_trace_stay_text(self):
        job = self.folder / "hostile"
        job.mkdir()
        for source in sorted(JOB.glob("*.json.gz")):
            text = gzip.decompress(source.read_bytes()).decode()
            for name, hostile in (("aten::mm", HOSTILE), ("load_batch", HOSTILE_END)):
                self.assertIn(json.dumps(name), text)
                text = text.replace(json.dumps(name), json.dumps(hostile))
            (job / source.name[:-3]).write_text(text, encoding="utf-8")
        page = self.folder / "hostile.html"
        result = diagnose(job, page)
        self.assertEqual(result["causes"][0]["what"], HOSTILE_END)
        dom, console = load(page)
        self.assert_clean(dom, console)
        self.assertEqual(list(dom.all("img")), [])
        self.assertNotEqual(dom.one("title").text, "taken")
        self.assertIn(HOSTILE, dom.one("section", id="operators").text)
        self.assertIn(HOSTILE_END, dom.one("h1").text)

    def test_a_thousand_ranks(self):
        page = self.folder / "thousand.html"
        result = synthetic.diagnosis(1000, 300, late=666)
        page.write_text(synthetic.with_result(self.page.read_text(encoding="utf-8"), result), encoding="utf-8")
        dom, console = load(page)
        self.assert_clean(dom, console)
        self.assertEqual(len(list(dom.all("div", "row"))), 1000 + 1)  # and the axis
        marked = [each.one("td", "rank").text for each in dom.one("section", id="step").all("tr", "marked")]
        self.assertEqual(marked, ["666"])  # though only 15 of the 1,000 are shown
        self.assertIn("140x on 20 ranks: unmatched flow", dom.one("section", id="input").text)

    def test_an_empty_result_and_one_rank_show_a_page(self):
        text = self.page.read_text(encoding="utf-8")
        empty = dict(self.result, ranks=[], collectives=[], findings=[], causes=[], operators=[], late_rank=None, median_step_ns=0)
        alone = dict(self.result, ranks=self.result["ranks"][:1], collectives=[], findings=[], causes=[], late_rank=None)
        for name, result, title in (("empty", empty, "Nothing stands out"), ("alone", alone, "Nothing stands out")):
            page = self.folder / f"{name}.html"
            page.write_text(synthetic.with_result(text, result), encoding="utf-8")
            dom, console = load(page)
            self.assert_clean(dom, console)
            self.assertEqual(dom.one("h1").text, title)


if __name__ == "__main__":
    if len(sys.argv) > 1 and os.path.exists(sys.argv[1]):
        PACELINE = pathlib.Path(sys.argv.pop(1)).resolve()
    if CHROMIUM is None:
        print("SKIPPED: no chromium")
        sys.exit(0)
    unittest.main()
