from __future__ import annotations

import subprocess
import sys


def test_a_node_without_the_extra_can_be_imported() -> None:
    """As it is where nobody asked for access: none of its libraries is even looked for."""
    program = (
        "import sys\n"
        "for name in ('joserfc', 'pwdlib', 'argon2', 'cryptography'):\n"
        "    sys.modules[name] = None\n"  # an import of it fails
        "import app.main, app.cli, app.access, app.core.access.explain\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
