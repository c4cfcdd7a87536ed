"""Fine-tuning and what is recorded during it."""
