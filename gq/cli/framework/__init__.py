"""What every command is made of: options, help, the connection, output, tables."""
