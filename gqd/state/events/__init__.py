"""The durable facts, by noun; `event` lists them all."""
