"""Trains the reader: a LoRA adapter that lets the embedded model answer from passages."""
