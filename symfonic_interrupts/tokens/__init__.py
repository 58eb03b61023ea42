"""Signed things: pause tokens, receipts, row MACs, and the keys they are signed with. Pure functions of data, key and clock."""
