from pathlib import Path

import pytest

from reports.figures.drawing import legend, sheet
from reports.figures.picture import Picture
from reports.figures.style import named, names, style
from reports.figures.svg import embedded_all, save


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("vllm_omni_wo, 3.4 s", "vLLM-Omni-wo, 3.4 s"),
        ("nova, fixed shares", "Nova, fixed shares"),
        *((text, text) for text in ("rehearse run nova-fig10", "renovate", "my_nova", "metronome_x", "0.7 requests/s")),
    ],
)
def test_systems_have_their_names_of_papers_and_nothing_else_changes(text: str, shown: str) -> None:
    assert named(text, names()) == named(named(text, names()), names()) == shown


def test_dollar_signs_of_a_label_begin_no_mathematics(tmp_path: Path) -> None:
    words = r"quota $5 \frac{ of $6 \bad exceeded"
    with style():
        figure, (axes,) = sheet(1, words)
        axes.set(xscale="log", xlim=(1, 1e4), xlabel=words)
        axes.set_yticks([0, 1], [words, "$x$"])
        axes.plot([1, 10], [0, 1], label=words)
        legend(figure)
        save(Picture("a", "a", figure, ""), tmp_path)
        assert not any(label.get_parse_math() for label in axes.get_yticklabels())
        assert all(label.get_parse_math() for label in axes.get_xticklabels())  # powers of ten


@pytest.mark.parametrize("name", ["a.svg", "a.pdf"])
def test_a_picture_replaces_a_link_and_writes_through_none(tmp_path: Path, name: str) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "figures"
    victim.write_text("mine")
    folder.mkdir()
    (folder / name).symlink_to(victim)
    with style():
        save(Picture("a", "a", sheet(1, "a")[0], ""), folder)
    assert victim.read_text() == "mine" and not (folder / name).is_symlink()


def test_pictures_are_the_same_on_any_number_of_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for cores in (1, 2):
        monkeypatch.setattr("reports.figures.svg.cores", lambda cores=cores: cores)
        with style():
            pictures = [Picture(name, name, sheet(2, name)[0], "") for name in "abc"]
            svgs = embedded_all(pictures, tmp_path)
        made.append((svgs, [(path.name, path.read_bytes()) for path in sorted(tmp_path.iterdir())]))
    assert made[0] == made[1] and [name for name, _ in made[0][1]] == ["a.svg", "b.svg", "c.svg"]
