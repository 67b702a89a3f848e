from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import resources

import pytest

from app.profiles.language.positions import Location, line_at, lines_of

TEXT = """\
# a comment, then a blank line

a = 1 # = "not a value"
"b c" . d = 'x # y'
list = [ # [
    "[", # a comment with ] in it
    [1, 2],

    { k = "}", l = [ 3 ] } ,
]
text = \"\"\"
x = 1
\\"\"\" ]\"\"\"
raw = '''
]
'''
[t.u]
v = {w = {x = 1.5e3, y = 1979-05-27T07:32:00Z}}
[[many]]
one = true
[many.under]
two = false
[[many.deep]]
three = 1
[[many.deep]]
three = 1
[[many]]
one = inf
"""


def places(value: object, place: Location = ()) -> Iterator[Location]:
    if place:
        yield place
    if isinstance(value, dict):
        for key, one in value.items():
            yield from places(one, (*place, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from places(one, (*place, index))


def test_every_place_has_its_line() -> None:
    lines = lines_of(TEXT)
    assert lines == lines_of(TEXT.replace("\n", "\r\n"))
    found = {".".join(map(str, place)): lines[place] for place in places(tomllib.loads(TEXT)) if place in lines}
    assert found == {
        "a": 3,
        "b c": 4,
        "b c.d": 4,
        "list": 5,
        "list.0": 6,
        "list.1": 7,
        "list.1.0": 7,
        "list.1.1": 7,
        "list.2": 9,
        "list.2.k": 9,
        "list.2.l": 9,
        "list.2.l.0": 9,
        "text": 11,
        "raw": 14,
        "t.u": 17,
        "t.u.v": 18,
        "t.u.v.w": 18,
        "t.u.v.w.x": 18,
        "t.u.v.w.y": 18,
        "many": 19,
        "many.0": 19,
        "many.0.one": 20,
        "many.0.under": 21,
        "many.0.under.two": 22,
        "many.0.deep": 23,
        "many.0.deep.0": 23,
        "many.0.deep.0.three": 24,
        "many.0.deep.1": 25,
        "many.0.deep.1.three": 26,
        "many.1": 27,
        "many.1.one": 28,
    }


@pytest.mark.parametrize("name", ["dji.toml", "homing.toml"])
def test_every_place_of_a_shipped_profile_has_a_line(name: str) -> None:
    text = (resources.files("app.profiles.shipped") / name).read_text("utf-8")
    assert set(places(tomllib.loads(text))) <= set(lines_of(text))


def test_what_is_not_there_is_where_it_would_be() -> None:
    lines = lines_of(TEXT)
    assert line_at(lines, ("many", 1, "absent")) == 27
    assert line_at(lines, ("absent",)) == 1
