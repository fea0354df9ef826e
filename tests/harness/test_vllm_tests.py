"""What vLLM's own tests are judged by: its own scheduler's outcomes, and a list of what may differ."""

from pathlib import Path

from tests.selftest.vllm_tests.__main__ import Intended, intended, judge, parse, policies, table

STOCK = {"core/a::x": "passed", "core/a::y": "passed", "core/a::hub": "failed", "core/b::z": "passed"}
LISTED = [Intended(("core/a::y",), frozenset({"ours"}), "so it is meant")]


def test_what_vllm_s_own_passes_must_pass():
    ours = {"ours": {"core/a::x": "failed", "core/a::y": "failed", "core/a::hub": "failed"}}
    assert judge(STOCK, ours, LISTED) == ["core/a::x passes with vLLM's scheduler and not under ours: failed"]
    assert judge(STOCK, {"other": {"core/a::y": "error"}}, LISTED) == [
        "core/a::y passes with vLLM's scheduler and not under other: error"
    ]


def test_a_line_of_the_list_that_nothing_needs_is_wrong_too():
    ours = {"ours": {"core/a::x": "passed", "core/a::y": "passed"}}
    assert judge(STOCK, ours, LISTED) == ["intended.yaml: nothing of core/a::y fails under ours"]
    assert judge(STOCK, {"ours": {"core/a::y": "failed"}}, LISTED) == []
    of_another_release = {test: outcome for test, outcome in STOCK.items() if test != "core/a::y"}
    assert judge(of_another_release, {"ours": {"core/a::x": "passed"}}, LISTED) == []


def test_the_table_has_a_file_a_line():
    ours = {"ours": {"core/a::x": "passed", "core/a::y": "failed", "core/a::hub": "failed"}}
    assert table(STOCK, ours, LISTED).splitlines()[2:] == [
        "| core/a | 3 | 2 | 1 + 1 |",
        "| core/b | 1 | 1 | – |",
        "| all | 4 | 3 | 1 + 1 |",
    ]


def test_outcomes_are_read_from_pytest_s_report(tmp_path: Path):
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="tests.v1.core.test_a" name="one[1]"/>'
        '<testcase classname="tests.v1.core.test_a.TestB" name="two"><failure>no</failure></testcase>'
        "</testsuite></testsuites>"
    )
    assert parse(report) == {"core/test_a::one[1]": "passed", "core/test_a::TestB::two": "failure"}


def test_the_list_names_schedulers_that_there_are():
    able = {"stage", *policies()}
    assert {"liveserve"} <= able and "nova" not in able
    for each in intended():
        assert each.under <= able
        assert each.tests and each.why
