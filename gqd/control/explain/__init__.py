"""Why a job waits, holds or runs as it does: the sentences of gqwhy."""
