"""Feeds: where snapshots come from. A feed is polled in a thread of its own and never waits for a host."""
