"""Which code of Spark the JVM's optimising compiler (C2) leaves to its quick one (C1).

A job of a minute plans and generates code for some hundred queries, each but once. Optimising what does that costs more
than it ever saves: two fifths of the processor time of an analysis of a million records went into compiling, most of it
this. What handles records stays with C2. (Compiler directives: JEP 165; the first directive that matches counts.)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

_PER_RECORD: Final = (
    "org/apache/spark/sql/catalyst/expressions/GeneratedClass*",
    "org/apache/spark/sql/catalyst/expressions/JoinedRow*",
    "org/apache/spark/sql/catalyst/expressions/Specific*",
    "org/apache/spark/sql/catalyst/expressions/Unsafe*",
    "org/apache/spark/sql/catalyst/expressions/X*",  # hashes
    "org/apache/spark/sql/catalyst/expressions/codegen/Buffer*",
    "org/apache/spark/sql/catalyst/expressions/codegen/Unsafe*",
    "org/apache/spark/sql/catalyst/util/*",
    "org/apache/spark/util/collection/*",
)
_PER_QUERY: Final = (
    "com/fasterxml/*",
    "java/io/Object*",  # tasks are sent serialized
    "java/lang/invoke/*",
    "jdk/internal/org/*",
    "net/razorvine/*",
    "org/antlr/*",
    "org/apache/hadoop/conf/*",
    "org/apache/hadoop/fs/*",
    "org/apache/logging/*",
    "org/apache/parquet/format/*",
    "org/apache/parquet/schema/*",
    "org/apache/spark/scheduler/*",
    "org/apache/spark/sql/catalyst/*",
    "org/apache/spark/sql/types/*",
    "org/apache/spark/util/*",
    "org/apache/xbean/*",
    "org/codehaus/*",
    "scala/*",
    "shaded/*",
)


def quick_compiler(file: Path) -> str:
    """Write the directives to a file; the options with which a HotSpot JVM follows them. It says so on its output."""
    directives = [
        {"match": [f"{classes}.*" for classes in found], "c2": {"Exclude": quick}}
        for found, quick in ((_PER_RECORD, False), (_PER_QUERY, True))
    ]
    file.write_text(json.dumps(directives), encoding="utf-8")
    return f"-XX:+UnlockDiagnosticVMOptions -XX:CompileCommand=quiet -XX:CompilerDirectivesFile={file}"
