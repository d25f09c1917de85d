"""Fine-tuning: one file a method, each reads from top to bottom."""

import logging

# It says at import that it finds no kernels for a CPU on the model hub; it works without them.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
