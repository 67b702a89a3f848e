"""`spark-submit app/cli/submit.py analyze LOG_DIR --out DIR`: `homing` as a program of Spark, whose master it takes."""

import sys
from pathlib import Path

# Spark looks for modules in the folder of its program first, where ours would hide those of the standard library.
sys.path = [folder for folder in sys.path if Path(folder or ".").resolve() != Path(__file__).parent]

from app.cli import main  # noqa: E402 - see above

main()
