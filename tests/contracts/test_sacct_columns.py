"""Whole blocks are told to be plain by columns: exactly where each of their rows is."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from clusters.connectors.sacct.columns import NEVER, Shape, _Criteria

SHAPE: Shape = (1, "a100", "", (1, 1), 1000, 1024, 1, 0, "")
GOOD = ("4711", 100, 100, 160, "60", "00:00:00", "COMPLETED", SHAPE)
MOMENTS = st.sampled_from((NEVER, -1, 0, 1, 99, 100, 101, 160))
ROWS = st.tuples(
    st.sampled_from(("4711", "1", "0", "01", "", "4711_2", "४७", "1" * 18, "1" * 19)),
    MOMENTS,
    MOMENTS,
    MOMENTS,
    st.sampled_from(("60", "0", "59", "060", "", "1-00:00:00")),
    st.sampled_from(("", "00:00:00", "00:00:01")),
    st.sampled_from(("COMPLETED", "RUNNING", "PENDING")),
    st.sampled_from((SHAPE, None)),
)


@given(st.lists(st.one_of(st.just(GOOD), ROWS), min_size=1, max_size=6))
@example([GOOD])
@example([GOOD, ("4712", 0, 100, 160, "60", "", "COMPLETED", SHAPE)])
@example([GOOD, ("", 100, 100, 160, "60", "", "COMPLETED", SHAPE)])
def test_a_block_is_plain_if_each_of_its_rows_is(rows: list[tuple[object, ...]]) -> None:
    criteria = _Criteria(*map(list, zip(*rows, strict=True)))
    assert criteria.all_plain() == all(criteria.plain())


def test_an_ordinary_block_is_plain_and_one_with_a_running_job_is_not() -> None:
    def criteria(*rows: tuple[object, ...]) -> _Criteria:
        return _Criteria(*map(list, zip(*rows, strict=True)))

    assert criteria(GOOD, GOOD).all_plain()
    assert criteria(GOOD, (*GOOD[:6], "RUNNING", SHAPE)).plain() == [True, False]
