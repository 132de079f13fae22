"""The audits: exact from thresholds, word by word, statistical; and the detector of poisoned reports."""
