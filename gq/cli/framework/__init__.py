"""The parts that all commands share: options, help, the connection, output, tables."""
