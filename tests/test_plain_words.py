"""The linter of docs/style.md finds what the page refuses, and nothing else."""

from pathlib import Path

import pytest

from tools.plain_words import STYLE, in_page, in_program, main

BAD = {
    "The report stands beside the table.": "beside",
    "One sentence says what to mend.": "mend",
    "The server is told how far\nits reply was played.": "is told",
    "It keeps so many of them in flight.": "so many",
    "Batch jobs get what is left.": "what is left",
    "It groups those with a common prefix.": "those with",
    "It found 40 files, of which three are empty.": "of which",
    "The user, whom the agent interrupts, waits.": "whom",
    "| a | here |\n|---|---|\n| 1 | here |": "| here |",
}
GOOD = (
    "Besides, the report is next to the table.\nThe fix is in the message, and here is why.",
    "```text\nbeside\n```\nThe option `beside` is [here](beside.md). <!-- so many -->",
    "| paper | ours |\n|---|---|\n| 1 | it is here |",
)


@pytest.mark.parametrize(("text", "words"), BAD.items())
def test_refused_words_are_found_in_pages_and_in_strings(text: str, words: str) -> None:
    assert words in [found for _, found, _ in in_page(text)]
    assert words in [found for _, found, _ in in_program(f"HELP = {text!r}")]


@pytest.mark.parametrize("text", GOOD)
def test_plain_words_and_code_pass(text: str) -> None:
    assert not list(in_page(text))


def test_a_finding_has_its_line() -> None:
    assert [line for line, _, _ in in_page("one\n\n```\nbeside\n```\nbeside")] == [6]
    docstrings = 'def run():\n    "It runs beside."\n\nclass Params:\n    c: int\n    "Calls beside."\n'
    for source, lines in (('a = 1\nb = f"x {a} beside"\n', [2]), (docstrings, [2, 6])):
        assert sorted(line for line, _, _ in in_program(source)) == lines


def test_the_exit_status_names_file_line_words_and_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("The table\nis beside it.\n")
    assert main([str(page)]) == 1
    assert f"{page}:2: “beside”: say next to" in capsys.readouterr().out
    assert main([str(STYLE)]) == 0
