"""Device memory: caches emptied too often, checkpoints that land or leave at the wrong time."""
