"""AMQP 0-9-1's topic rules, case by case: a pattern, the keys that it takes, and keys that it does not take.

Each line was written by hand. A key or pattern that is empty stands as `""`.
"""

from __future__ import annotations

from typing import Final

_TABLE: Final = """
pattern         | takes                                          | does not take
""              | ""                                             | a . a.b
a               | a                                              | "" b A aa a.a a.b b.a
low             | low                                            | lo lower low.low Low
a.b             | a.b                                            | a b ab a.b.c a.a b.a a. .b
stock.usd.nyse  | stock.usd.nyse                                 | stock.usd stock.eur.nyse stock.usd.nyse.x usd.nyse
a.b.b.c         | a.b.b.c                                        | a.b.c a.b.b a.b.b.b.c
*               | a b oneword a-b a_b 7                          | "" a.b . a.b.c
*.*             | a.b b.a a.a .                                  | "" a a.b.c a..b
*.*.*           | a.b.c x.y.z ..                                 | a.b a a.b.c.d
a.*             | a.b a.a a.*                                    | a b.a a.b.c "" A.b
*.a             | b.a a.a                                        | a a.b b.b.a
a.*.c           | a.b.c a.a.c a.c.c                              | a.c a.b.b.c a.b.d c.b.a
*.b.*           | a.b.c b.b.b                                    | a.b b.c a.c.b a.a.b.c
*.b.c           | a.b.c b.b.c                                    | b.c a.a.b.c a.b.c.d
*.orange.*      | quick.orange.rabbit lazy.orange.elephant       | orange quick.orange quick.orange.new.rabbit
*.*.rabbit      | quick.orange.rabbit lazy.pink.rabbit           | rabbit lazy.rabbit a.b.c.rabbit quick.brown.fox
lazy.#          | lazy lazy.brown lazy.orange.new.rabbit         | quick.lazy lazybones ""
#               | "" a a.b a.b.c.d.e.f . ..                      |
#.#             | "" a a.b a.b.c                                 |
#.#.#           | "" a a.b a.b.c                                 |
a.#             | a a.b a.b.c a.a.a.a                            | "" b b.a aa aa.b
a.#.#           | a a.b a.b.c                                    | "" b b.a
#.a             | a b.a a.a c.b.a                                | "" b a.b a.a.b
#.b             | b a.b a.b.b                                    | "" a b.a
#.b.#           | b a.b b.a a.b.c b.b a.a.b.c.c                  | "" a a.c bb a.bb.c
a.#.b           | a.b a.x.b a.b.b a.x.y.z.b                      | a b b.a a.b.c x.a.b
a.#.a           | a.a a.b.a a.a.a                                | a a.b b.a.a
a.#.b.#         | a.b a.b.c a.x.b a.x.b.y a.b.b                  | a b a.x b.a
#.a.#.b.#       | a.b x.a.b a.x.b x.a.y.b.z a.a.b.b              | a b b.a b.x.a x.b.a.y
a.#.b.#.c       | a.b.c a.x.b.c a.b.x.c a.b.b.c.c a.b.c.b.c      | a.c a.b c.b.a a.c.b a.b.c.d
#.a.b.#         | a.b x.a.b a.b.x a.a.b a.b.b x.y.a.b.z          | a b b.a a.x.b
*.#             | a a.b a.b.c                                    | ""
#.*             | a a.b a.b.c                                    | ""
*.#.*           | a.b a.b.c a.b.c.d                              | "" a
#.*.#           | a a.b a.b.c                                    | ""
*.#.#           | a a.b a.b.c                                    | ""
#.*.*           | a.b a.b.c a.b.c.d                              | "" a
*.*.#           | a.b a.b.c                                      | "" a
#.*.#.*.#       | a.b a.b.c a.b.c.d                              | "" a
a.*.#           | a.b a.b.c a.b.c.d                              | a b.a ""
a.#.*           | a.b a.b.c                                      | a b.a ""
#.*.a           | b.a a.a c.b.a                                  | a "" a.b
#.a.*           | a.b a.a b.a.c                                  | a "" b.b a.b.c
*.#.a           | b.a a.a c.b.a                                  | a "" a.b
*.a.#           | b.a b.a.c a.a                                  | a a.b "" b.b.a
a.*.#.b         | a.x.b a.b.b a.x.y.b                            | a.b a b
a.#.*.b         | a.x.b a.b.b a.x.y.b                            | a.b a b
#.*.b.#         | a.b a.b.c x.a.b                                | b b.a ""
vodka.martini   | vodka.martini                                  | vodka.gin vodka martini
*.martini       | vodka.martini gin.martini                      | martini vodka.gin
a*              | a*                                             | a ab a.b
a#              | a#                                             | a ab a.b
a.b*            | a.b*                                           | a.b a.bc
a.#b            | a.#b                                           | a.b a.c.b
+               | +                                              | a b
a.+             | a.+                                            | a.b a
a/b             | a/b                                            | a.b a
a..b            | a..b                                           | a.b a.c.b
.a              | .a                                             | a a.
#.              | . a. a.b.                                      | "" a
"""


def cases() -> list[tuple[str, str, bool]]:
    """Pattern, key, and whether the pattern takes it."""
    found = []
    for line in _TABLE.strip().splitlines()[1:]:
        pattern, *keys = [[word.strip('"') for word in part.split()] for part in line.split("|")]
        found += [(pattern[0], key, takes) for part, takes in zip(keys, (True, False), strict=True) for key in part]
    return found
