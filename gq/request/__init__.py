"""What a user asks for: options, directives in scripts, resources, patterns, and the job that they make."""
