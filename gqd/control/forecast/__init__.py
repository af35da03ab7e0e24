"""When jobs will start and end: estimates, what-if questions, alternatives, extensions."""
