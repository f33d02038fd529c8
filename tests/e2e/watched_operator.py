"""The operator under watch: `python -m tests.e2e.watched_operator operator …`, its offences as JSON lines in $HYGIENE.

The real program with the real parts; at its orderly end, the blocking calls on its loop are written down.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

from hummingbird_operator.__main__ import main
from tests.unit.agentruns.hygiene import watching

if __name__ == "__main__":
    with watching() as watch:
        status = main()
    lines = [json.dumps(dataclasses.asdict(each)) for each in watch.offences]
    Path(os.environ["HYGIENE"]).write_text("".join(f"{line}\n" for line in lines))
    sys.exit(status)
