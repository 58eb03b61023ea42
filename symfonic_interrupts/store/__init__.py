"""The pause store: its tables, the transactions over them, and the one seam between sync and async."""
