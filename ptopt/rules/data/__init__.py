"""Data loading: workers, pinned memory, and work done again for each item."""
