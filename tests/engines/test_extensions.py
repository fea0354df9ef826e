from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from engines.core.stage import AttentionWindow, HostCopies, Safepoints
from tests.engines.stage import make_stage


@dataclass(frozen=True)
class Mine:
    """An extension of another package."""

    value: int = 0


each = st.one_of(
    st.builds(Mine, st.integers(0, 9)),
    st.builds(Safepoints, st.integers(1, 9)),
    st.builds(HostCopies, from_priority=st.integers(0, 9)),
    st.builds(AttentionWindow, st.integers(1, 9), st.integers(0, 9)),
)


@given(st.lists(each, max_size=8), st.lists(each, max_size=8))
def test_a_stage_keeps_the_last_extension_of_each_type(own: list[object], of_role: list[object]) -> None:
    stage = make_stage().extended(*own).with_role("decode", *of_role)
    for found, attached in ((stage, own), (stage.as_role("decode"), [*own, *of_role])):
        last = {type(extension): extension for extension in attached}
        for kind in (Mine, Safepoints, HostCopies, AttentionWindow):
            assert found.extension(kind) == last.get(kind)
        assert len(found.extensions) == len(last)
    assert make_stage().extensions == ()
