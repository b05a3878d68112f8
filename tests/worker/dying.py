"""An app that takes its process down while it is loaded: only a runner may import it."""

import os

os._exit(7)
