"""The sockets that clients and nodes reach, and who may speak there."""
