"""How dates and times are written, by language, as Django's `FORMAT_MODULE_PATH` finds it."""
