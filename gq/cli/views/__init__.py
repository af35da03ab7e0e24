"""Output that several commands share: estimates, alternatives, reservations, accounts, chains."""
