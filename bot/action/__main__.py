"""`python -m bot.action`, as the steps of `action.yml` call it."""

from __future__ import annotations

import sys

from bot.action.run import main

sys.exit(main())
