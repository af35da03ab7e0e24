"""The text of explanations: sentences and hints from the reasons that the controller sends as data."""
