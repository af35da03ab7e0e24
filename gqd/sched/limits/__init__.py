"""The limits that accounts, users and QOS set: who may use what, how much is used, which jobs are over a limit."""
