"""Functional experiments with fine-tuned models."""
