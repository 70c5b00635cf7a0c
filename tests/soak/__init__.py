"""The soak: hours of steady load, and whether anything grows that must not."""
