"""The node daemon: its loop, its listeners, and what it does for the attempts on this node."""
