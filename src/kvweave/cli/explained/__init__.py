"""How an explanation of a prompt is shown."""
