"""SQL over traces."""

import json
import resource
import sys

import pytest

from hvdtune.cli.app import main
from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.timeline import write_chrome
from hvdtune.timeline.analysis.metrics import breakdown
from hvdtune.timeline.analysis.query import Queries, query
from hvdtune.timeline.analysis.query_process import QueryLimits
from tests.kit.synthetic import Training

TRACE = Training([10.0, 14.0]).trace()


def test_an_empty_query_is_called_so():
    with pytest.raises(UsageError, match="the query is empty: write a SELECT"):
        query(Training([4.0, 5.0]).trace(), " ")


def test_without_duckdb_there_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(HvdtuneError, match=r"pip install 'hvdtune\[query\]'"):
        query(TRACE, "SELECT 1")


@pytest.fixture
def duckdb():
    return pytest.importorskip("duckdb")


@pytest.mark.usefixtures("duckdb")
class TestQueries:
    def test_slices_and_steps_are_tables(self):
        sql = "SELECT rank, count(*) AS n FROM slices WHERE kind = 'STEP' GROUP BY rank ORDER BY 1"
        assert query(TRACE, sql).to_numpy().tolist() == [[0, 60], [1, 60]]
        mean = query(TRACE, "SELECT avg(step_ms) AS ms FROM steps")["ms"].item()
        steps = breakdown.steady_steps(TRACE)
        assert mean == pytest.approx(steps["step_ms"].mean())

    @pytest.mark.parametrize(
        ("sql", "said"),
        [
            ("SELEC 1", "syntax error"),
            (
                "SELECT * FROM nothing",
                "nothing does not exist! The tables are slices, events, steps.",
            ),
            ("SELECT * FROM read_csv('/etc/passwd')", "file system operations are disabled"),
            ("", "the query"),
            ("INSERT INTO steps VALUES (1)", "cannot be changed"),
            ("DROP VIEW steps", "cannot be changed"),
        ],
    )
    def test_a_query_that_cannot_be_answered_is_a_sentence(self, sql, said):
        with pytest.raises(UsageError) as caught:
            query(TRACE, sql)
        assert said in str(caught.value) and "\n" not in str(caught.value)

    def test_a_query_within_limits_says_whether_there_are_more_rows(self):
        limits = QueryLimits(rows=3, seconds=60, memory_mb=500)
        assert len(query(TRACE, "SELECT * FROM slices", limits)) == 4
        assert len(query(TRACE, "SELECT * FROM slices LIMIT 3", limits)) == 3

    def test_a_query_cannot_change_its_limits(self):
        with pytest.raises(UsageError, match="the configuration has been locked"):
            query(TRACE, "SET memory_limit = '9GB'", QueryLimits(memory_mb=200))

    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT count(*) FROM range(1000000000000)",
            "SELECT levenshtein(repeat('a', 200000), repeat('b', 200000))",  # one long function
        ],
    )
    def test_a_query_is_killed_at_its_deadline(self, sql):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        with pytest.raises(HvdtuneError, match=r"took more than 0.1 s; ask less") as caught:
            query(TRACE, sql, QueryLimits(seconds=0.1, more_seconds="; ask less"))
        assert not isinstance(caught.value, UsageError)
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 10

    def test_limits_hold_where_duckdb_does_not_count(self):
        queries, limits = Queries(), QueryLimits(memory_mb=300, answer_mb=1, more_memory="; less")
        try:
            for sql, said in (
                ("SELECT list_sum(range(100000000))", "needs more memory than 300 MB; less"),
                ("SELECT length(repeat('abcdefghij', 100000000))", "needs more memory than 300 MB"),
                ("SELECT count(DISTINCT a) FROM range(100000000) t(a)", "needs more memory"),
                ("SELECT repeat('x', 2000000)", "the answer is larger than 1 MB"),
            ):
                with pytest.raises(UsageError, match=said):
                    queries.ask(TRACE, sql, limits)
            assert len(queries.ask(TRACE, "SELECT * FROM steps LIMIT 2", limits)) == 2
        finally:
            queries.end()

    def test_a_process_is_kept_for_one_trace_and_replaced_once_it_ended(self):
        queries, other = Queries(), Training([4.0, 5.0]).trace()
        sql = "SELECT count(*) AS n FROM steps"
        try:
            first = queries.ask(TRACE, sql, QueryLimits())["n"].item()
            process = queries._process
            assert queries.ask(TRACE, sql, QueryLimits())["n"].item() == first
            assert queries._process is process
            with pytest.raises(HvdtuneError, match="took more than"):
                queries.ask(TRACE, "SELECT count(*) FROM range(1000000000000)", QueryLimits(0.1))
            assert queries.ask(TRACE, sql, QueryLimits())["n"].item() == first
            assert queries._process is not process
            queries.ask(other, "SELECT 1", QueryLimits())
        finally:
            queries.end()

    @pytest.mark.parametrize(
        ("sql", "words", "code", "said"),
        [
            ("SELECT count(*) FROM range(1000000000000)", ["--seconds", "0.1"], 1,
             "more than 0.1 s; --seconds allows more"),
            ("SELECT rank, step FROM steps WHERE rank > 9", [], 0,
             "The answer has no rows. Its columns are rank, step.\n"),
            ("SELECT 'a' AS x, 1 AS y UNION ALL SELECT NULL, NULL", [], 0, "NULL NULL"),
            ("DESCRIBE steps", [], 0, "column_name column_type\n"),
        ],
        ids=["too-long", "no-rows", "nulls", "columns"],
    )  # fmt: skip
    def test_the_command_answers_in_words(self, tmp_path, capsys, sql, words, code, said):
        write_chrome(TRACE, tmp_path / "trace.json")
        with pytest.raises(SystemExit) as ended:
            main(["timeline", "query", *words, sql, str(tmp_path / "trace.json")])
        told = capsys.readouterr()
        assert ended.value.code == code and said in told.out + told.err
        assert "None" not in told.out

    def test_the_command_prints_rows(self, tmp_path, capsys):
        write_chrome(TRACE, tmp_path / "trace.json")
        for words, read in (([], lambda text: text.split()), (["--json"], json.loads)):
            sql = "SELECT max(step) AS last FROM steps"
            with pytest.raises(SystemExit) as ended:
                main(["timeline", "query", *words, sql, str(tmp_path / "trace.json")])
            assert ended.value.code == 0
            assert read(capsys.readouterr().out) in (["last", "59"], [{"last": 59}])
