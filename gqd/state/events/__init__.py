"""The durable events, by noun; `event` lists all of them."""
