"""How well `ptopt profile` reads runs: against torch's own figures, on seeded bottlenecks, and on a large file."""
