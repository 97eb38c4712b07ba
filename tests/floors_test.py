"""tools/check_floors finds what breaks the table, and nothing else."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parent.parent / "tools" / "check_floors"
TABLE = """
| floor | room | what lives there | may also include |
|---|---|---|---|
| 0 | base | everything else stands on it | |
| 2 | trace | reads | |
| 2 | cost | predicts | trace |
| 8 | cli, python | thin | |
"""


class FloorsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)
        self.write("docs/architecture.md", TABLE)
        self.write("paceline/base/error.cc", '#include "paceline/base/error.h"\n#include <vector>\n')
        self.write("paceline/trace/read.cc", '#include "paceline/base/error.h"\n')
        self.write("paceline/cost/model.cc", '#include "paceline/trace/read.h"\n')
        self.write("cli/main.cc", '#include "paceline/cost/model.h"\n')
        self.write("CMakeLists.txt", "paceline_room(NAME base LIBRARIES fmt::fmt)\n"
                                     "paceline_room(NAME trace DEPENDS base)\n"
                                     "paceline_room(NAME cost\n  DEPENDS base trace)  # DEPENDS cli\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def check(self, *arguments):
        run = subprocess.run([sys.executable, "-B", str(CHECK), "--root", str(self.root), *arguments],
                             capture_output=True, text=True, check=False)
        return run.returncode, run.stdout + run.stderr

    def build(self, room, text):
        self.write("build/source.cc", text)
        source, library = self.root / "build/source.cc", self.root / f"build/libpaceline_{room}.a"
        subprocess.run(["c++", "-c", str(source), "-o", str(source) + ".o"], check=True)
        subprocess.run(["ar", "rcs", str(library), str(source) + ".o"], check=True)

    def test_an_orderly_tree_passes(self):
        self.assertEqual(self.check(), (0, "floors: 4 rooms in order\n"))

    def test_including_a_higher_floor_is_named_with_file_and_line(self):
        self.write("paceline/base/deep/table.h", '#pragma once\n\n#  include "paceline/trace/read.h"\n')
        status, text = self.check()
        self.assertEqual(status, 1)
        self.assertIn("paceline/base/deep/table.h:3: base (floor 0) must not use trace (floor 2)", text)

    def test_a_neighbour_needs_a_word_in_the_last_column(self):
        self.write("paceline/trace/guess.cc", '#include "paceline/cost/model.h"\n')
        status, text = self.check()
        self.assertEqual(status, 1)
        self.assertIn("paceline/trace/guess.cc:1: trace (floor 2) must not use cost (floor 2)", text)

    def test_tests_and_benchmarks_are_free(self):
        self.write("paceline/base/error_test.cc", '#include "paceline/cost/model.h"\n')
        self.write("paceline/base/error_bench.cc", '#include "paceline/cost/model.h"\n')
        self.assertEqual(self.check()[0], 0)

    def test_a_room_without_a_row_is_refused(self):
        self.write("paceline/attic/old.cc", "")
        self.write("paceline/cost/more.cc", '#include "paceline/cellar/old.h"\n')
        status, text = self.check()
        self.assertEqual(status, 1)
        self.assertIn("paceline/attic: 'attic' is not a room", text)
        self.assertIn("paceline/cost/more.cc:1: 'cellar' is not a room", text)

    def test_declared_dependencies_are_checked(self):
        self.write("paceline/trace/CMakeLists.txt", "\npaceline_room(NAME trace DEPENDS base cost)\n")
        status, text = self.check()
        self.assertEqual(status, 1)
        self.assertIn("paceline/trace/CMakeLists.txt:2: DEPENDS: trace (floor 2) must not use cost (floor 2)", text)

    def test_linked_symbols_are_checked_even_without_an_include(self):
        self.build("base", "namespace paceline::trace { int read(); }\n"
                           "namespace paceline::base { int sneak() { return trace::read(); } }\n")
        self.build("trace", "namespace paceline::base { int sneak(); }\n"
                            "namespace paceline::trace { int read() { return base::sneak(); } }\n")
        self.build("cost", "")
        status, text = self.check("--build", str(self.root / "build"))
        self.assertEqual(status, 1)
        self.assertIn("libpaceline_base.a: links 'paceline::trace::read()': base (floor 0) must not use trace", text)
        self.assertEqual(len(text.splitlines()), 1, text)

    def test_a_missing_library_is_not_taken_for_a_clean_one(self):
        status, text = self.check("--build", str(self.root / "build"))
        self.assertEqual(status, 1)
        self.assertIn("build first", text)

    def test_a_missing_table_is_an_error_of_its_own(self):
        self.write("docs/architecture.md", "no table\n")
        status, text = self.check()
        self.assertEqual(status, 2)
        self.assertIn("restore the table", text)


if __name__ == "__main__":
    unittest.main()
