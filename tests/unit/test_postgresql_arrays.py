"""Tests of array literals for PostgreSQL: special elements are quoted."""

import pytest

from duly.stores.sql.dialects.postgresql.arrays import numbers_array, texts_array


@pytest.mark.parametrize(
    ("texts", "written"),
    [
        ([], "{}"),
        (["a"], '{"a"}'),
        (["a", "b,c", ""], '{"a","b,c",""}'),
        (["a", None], '{"a",NULL}'),
        (['say "a"', "b"], r'{"say \"a\"","b"}'),
        (['","', "b"], r'{"\",\"","b"}'),
        (["a\\b"], r'{"a\\b"}'),
    ],
)
def test_texts(texts: list[str | None], written: str) -> None:
    assert texts_array(texts) == written


@pytest.mark.parametrize(
    ("numbers", "written"),
    [([], "{}"), ([7], "{7}"), ([1, -2, None], "{1, -2, NULL}")],
)
def test_numbers(numbers: list[int | None], written: str) -> None:
    assert numbers_array(numbers) == written
