"""Games with a trained player: in a terminal, a browser, and other programs."""
