"""Why a job cannot start: infeasible requests, ineligible nodes, resources in use."""
