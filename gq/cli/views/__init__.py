"""What several commands show alike: estimates, alternatives, reservations, accounts, chains."""
